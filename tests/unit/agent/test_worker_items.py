"""Items through a worker: one at a time, finished before a newer revision, and `sharing.*` by their settlement."""

from collections.abc import Iterator

import pytest
from kits.sync import limits
from kits.worker import Wire
from kits.workercontroller import INSTALL, RESTART
from kits.workerodd import end, odd, odd_wire
from kits.workerworld import CutError

from edgegpu_sync.messages.spec import AppLimits, Sharing, Spec
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.settle import OPEN, Settlement
from edgegpu_sync.states import CommandState, ResultCode


@pytest.fixture
def wire() -> Iterator[Wire]:
    with odd_wire() as wire:
        yield wire


@pytest.mark.parametrize(
    ("raises", "says", "state", "code"),
    [
        (OSError("no"), None, CommandState.FAILED, ResultCode.ERROR),
        (None, OPEN, CommandState.FAILED, ResultCode.ERROR),
        (None, Settlement.failed("TIMED_OUT", "late", restored=True), CommandState.ROLLED_BACK, ResultCode.TIMED_OUT),
        (None, Settlement.rejected("PRECHECK", "no disk"), CommandState.REJECTED, ResultCode.PRECHECK),
        (None, None, CommandState.SUCCEEDED, None),
    ],
)
def test_a_sharing_command_ends_as_its_item(
    wire: Wire, raises: Exception | None, says: Settlement | None, state: CommandState, code: str | None
) -> None:
    odd(wire).settler.raises, odd(wire).settler.says = raises, says
    _, id_ = wire.controller.sharing(installed=True)
    wire.down += wire.controller.desired_message()
    wire.exchange()
    assert end(wire, id_) == (state, code)
    assert wire.box.journal.note("sharing") is None


def test_a_sharing_command_waits_for_its_revision_and_holds_nothing_up(wire: Wire) -> None:
    first = wire.controller.command(INSTALL, {"min_rev": 1})
    second = wire.controller.command(RESTART)
    wire.exchange()
    assert wire.controller.tracked[first].state is CommandState.ACCEPTED
    assert end(wire, second) == (CommandState.SUCCEEDED, None)
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=False)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    assert end(wire, first) == (CommandState.REJECTED, ResultCode.SUPERSEDED)


def test_items_without_a_settler_are_unsupported(wire: Wire) -> None:
    wire.controller.desire(Spec(app_limits=(limits(),)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    assert wire.controller.reported is not None
    (item,) = wire.controller.reported.items.values()
    assert (item.state, wire.controller.reported.applied_rev) == (ItemState.UNSUPPORTED, 1)


@pytest.mark.parametrize("cut", [False, True])
def test_what_was_begun_is_finished_before_a_newer_revision(wire: Wire, *, cut: bool) -> None:
    box, controller = odd(wire), wire.controller
    controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    box.arrive(*controller.desired_message()[0])
    if cut:
        box.world.steps, box.world.cut_at = 0, 3  # the transaction is done, and nobody has said so
        with pytest.raises(CutError):
            box.executor.run()
        box.world.cut_at = -1
    controller.desire(Spec(sharing=Sharing(rev=2, installed=False)))
    box.arrive(*controller.desired_message()[0])
    if cut:
        box.crash()
        box.start()
        wire.connect()
    wire.exchange()
    assert [rev for rev, _ in box.settler.seen] == [1, 2]
    assert (box.settler.seen[0][1] is None, box.settler.seen[1][1]) == (not cut, None)
    assert list(box.world.transactions.values()) == [1, 1]
    assert not box.world.installed
    assert controller.reported is not None
    assert controller.reported.applied_rev == 2


def test_an_item_that_takes_the_agent_down_three_times_is_failed(wire: Wire) -> None:
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    wire.box.arrive(*wire.controller.desired_message()[0])
    for _ in range(3):
        wire.box.crash()
        wire.box.start()
    wire.connect()
    wire.exchange()
    assert wire.controller.reported is not None
    assert wire.controller.reported.items["sharing"].code == ResultCode.ATTEMPTS


@pytest.mark.parametrize("raises", [None, OSError("the API server is away")])
def test_an_item_begun_and_asked_for_no_more_is_undone_and_dropped(wire: Wire, raises: Exception | None) -> None:
    box = wire.box
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    box.arrive(*wire.controller.desired_message()[0])
    wire.controller.desire(Spec())
    box.arrive(*wire.controller.desired_message()[0])
    box.crash()
    box.start()
    odd(wire).settler.raises = raises
    assert [name for name, _ in box.executor.jobs] == ["abandon sharing"]
    box.crash()
    box.start()
    odd(wire).settler.raises = raises
    box.executor.run()
    box.worker.run_round()
    assert odd(wire).settler.abandoned == [("sharing", None)]
    assert (box.worker.status().settling, box.executor.jobs) == ("", [])


def test_a_restart_does_not_begin_beside_an_item_nor_an_item_beside_a_restart(wire: Wire) -> None:
    box, controller = wire.box, wire.controller
    controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    box.arrive(*controller.desired_message()[0])
    controller.command(RESTART)
    for message in controller.sends():
        box.arrive(*message)
    assert [name for name, _ in box.executor.jobs] == ["settle sharing"]
    box.executor.run()
    box.worker.run_round()
    controller.desire(Spec(sharing=Sharing(rev=2, installed=False)))
    box.arrive(*controller.desired_message()[0])
    assert [name.split()[0] for name, _ in box.executor.jobs] == ["k3s.restart"]
    wire.exchange()
    assert controller.reported is not None
    assert controller.reported.applied_rev == 2


def test_a_pending_item_lands_and_conditions_are_reported(wire: Wire) -> None:
    odd(wire).settler.says = Settlement(state=ItemState.PENDING, text="it waits for a card")
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    (one,) = wire.box.worker.status().items.values()
    assert one.state is ItemState.PENDING
    asked = wire.box.worker._core.held.desired_state.asked[0]  # noqa: SLF001  (a settler has it from its call)
    wire.box.worker.landed(asked.name, asked.key, Settlement.applied())
    wire.box.worker.noticed(asked.name, (Condition(type="Drifted", manager="baetyl"),))
    wire.exchange()
    assert wire.controller.reported is not None
    item = wire.controller.reported.items["sharing"]
    assert (item.state, item.conditions) == (ItemState.APPLIED, (Condition(type="Drifted", manager="baetyl"),))


def test_what_nobody_settles_is_no_capability(wire: Wire) -> None:
    assert AppLimits not in odd(wire).settlers()
    assert "app_limits" not in wire.box.worker.capabilities
