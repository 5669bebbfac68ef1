"""Each command ends in exactly one state, and is done once at most, whatever is lost, doubled, cut or killed."""

import random

import pytest
from kits.controller import Bed, Faults, Killer, NewBed

from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.spec import Exclusions, Spec
from edgegpu_sync.states import CommandState

OPS = ("k3s.restart", "inventory.refresh", "plugin.restart", "doctor.run")


def check_ledgers(bed: Bed, asked: dict[CommandId, DeviceId]) -> None:
    """Hold what the store says against what the boxes know and what was really done."""
    for id_, device in asked.items():
        view = bed.fleet.one_command(id_)
        record = bed.box(device).records.get(id_)
        done = bed.world.done[device, id_]
        ends = [line.state for line in view.history if line.state.terminal]
        assert view.state is not None
        assert ends == [view.state], f"{id_} has ended {len(ends)} times"
        assert record is not None
        assert record.state is view.state
        assert done <= 1 or view.op in {"inventory.refresh", "doctor.run"}, f"{id_} was done {done} times"
        assert (done > 0) == (view.state is CommandState.SUCCEEDED)


def chaos(bed: Bed, rng: random.Random, *, commands: int) -> dict[CommandId, DeviceId]:
    """Ask for commands while boxes come, go and die, and the controller is killed."""
    asked: dict[CommandId, DeviceId] = {}
    while len(asked) < commands:
        device = rng.choice(bed.devices)
        match rng.randrange(8):
            case 0:
                bed.network.cut_off(device)
            case 1 | 2 if device in bed.network.cut:
                bed.network.connect(bed.box(device))
            case 3:
                bed.box(device).died()
                bed.network.connect(bed.box(device))
            case 4 if rng.random() < 0.5:
                bed.alive(bed.restart)
            case 5 if rng.random() < 0.3:
                bed.network.replaced(bed.controller)
            case _:
                asked[bed.fleet.command(device, rng.choice(OPS), {}, wait_s=rng.choice((5, 60, 3600)))] = device
        bed.settle(rng.choice((0.5, 3.0)), step_s=0.5)
    return asked


def calm(bed: Bed) -> None:
    """Take the faults away, and wait until everything has ended."""
    bed.network.faults = Faults()
    for device in bed.devices:
        if device in bed.network.cut:
            bed.network.connect(bed.box(device))
    bed.until(bed.all_ended, step_s=5, within_s=3_000)
    bed.settle(60, step_s=5)


@pytest.mark.parametrize("seed", range(4))
def test_a_bad_network_loses_and_doubles_nothing(new_bed: NewBed, seed: int) -> None:
    rng = random.Random(seed)
    bed = new_bed(seed=seed, boxes=2, faults=Faults(lose=0.2, double=0.2, delay=0.3))
    bed.connect_all()

    asked = chaos(bed, rng, commands=12)
    calm(bed)

    check_ledgers(bed, asked)
    for device in bed.devices:
        assert {one.id for one in bed.box(device).records.values()} == bed.box(device).receipted


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_is_killed_around_commits_loses_nothing(new_bed: NewBed, seed: int) -> None:
    rng = random.Random(seed)
    bed = new_bed(seed=seed, boxes=2, faults=Faults(delay=0.2))
    bed.connect_all()
    killer = Killer(lambda moment: moment % (3 + seed) == 0, off=True)
    bed.watcher = killer

    asked: dict[CommandId, DeviceId] = {}
    for _ in range(8):
        killer.off = True
        asked |= chaos(bed, rng, commands=1)
        killer.off = False
        bed.settle(3)
    killer.off = True
    calm(bed)

    assert killer.kills > 2
    check_ledgers(bed, asked)


def test_a_box_that_was_away_for_weeks_says_all_and_does_nothing_late(new_bed: NewBed) -> None:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)
    done = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    bed.until(lambda: done in bed.box().records)
    bed.network.cut_off(bed.devices[0])
    for _ in range(10):
        bed.box().work()
    bed.box().happen("the line is cut", level="alarm")
    late = bed.fleet.command("box-1", "plugin.restart", {}, wait_s=86_400)
    for day in range(28):
        bed.world.now_s += 86_400
        if day % 5 == 0:
            bed.restart()
        if day % 7 == 0:
            bed.network.replaced(bed.controller)
        bed.fleet.set_spec("box-1", lambda spec: with_cards(spec, f"{day}"))  # noqa: B023  (called at once)
        bed.settle(10, step_s=5)
    bed.network.connect(bed.box())
    bed.until(bed.all_ended)
    bed.settle(60, step_s=5)

    assert (bed.state(done), bed.state(late)) == (CommandState.SUCCEEDED, CommandState.EXPIRED)
    assert bed.world.done == {(bed.devices[0], done): 1}
    view = bed.fleet.box("box-1")
    assert (view.rev, view.applied_rev, view.restored) == (28, 28, False)
    assert [event.text for event in bed.fleet.events()] == ["the line is cut"]
    assert bed.box().events == []
    assert bed.box().receipted >= {done, late}


def with_cards(spec: Spec, card: str) -> Spec:
    return spec.model_copy(update={"exclusions": Exclusions(rev=0, cards=(card,))})


def test_killed_at_every_single_commit_of_a_command(new_bed: NewBed) -> None:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)
    asked: dict[CommandId, DeviceId] = {}
    number = 0
    while True:
        number += 1
        killer = Killer(lambda moment, at=number: moment == at, off=True)  # type: ignore[misc]
        bed.watcher = killer
        id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
        asked[id_] = bed.devices[0]
        killer.off = False
        bed.until(lambda one=id_: bed.fleet.one_command(one).ended)  # type: ignore[misc]
        killer.off = True
        if not killer.kills:
            break
    bed.settle(60, step_s=5)

    assert number > 6
    check_ledgers(bed, asked)
