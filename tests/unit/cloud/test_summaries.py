"""Summaries of boxes: always in step with what lists show, and each change of one is found by its number."""

import random
from importlib import import_module
from pathlib import Path

import pytest
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from kits.controller import Bed, Faults
from kits.daily import of_the_day
from kits.modelbox import ModelBox
from sqlalchemy import text

from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.records import PARTITIONS, partition_of
from edgegpu_cloud.store.summaries.box_list import UNKNOWN_HEALTH, ListedBox
from edgegpu_cloud.store.summaries.tables import ChangeNumbers
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.telemetry import Alloc, BoxHealth, CardReport, CardShare, Inventory, PodAlloc
from edgegpu_sync.messages.uplink import Goodbye, UplinkBody
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import PlainKind, TopicKind

CARD = "GPU-1"


def say(box: ModelBox, kind: PlainKind, body: type[UplinkBody], **values: object) -> None:
    box.say(box.plain(kind), body.model_validate({**box._up(), **values}))  # noqa: SLF001


def say_inventory(box: ModelBox, *, units: int, healthy: bool = True, sharing: bool = True) -> None:
    card = CardReport(uuid=CARD, label="0", name="T4", memory_mib=units * 256, units=units, healthy=healthy)
    values = {"node": "n", "role": "server", "sharing": sharing, "unit_mib": 256, "mode": "none", "cards": (card,)}
    say(box, TopicKind.INVENTORY, Inventory, **values, policy="first-fit")


def say_pods(box: ModelBox, pods: dict[str, int]) -> None:
    """Send whose pods hold how many units of the card, by the pods' names."""
    said = {
        name: PodAlloc(
            namespace="default",
            name=name,
            phase="Running",
            pieces=(CardShare(container="main", card=CARD, memory_units=units, core=1),),
        )
        for name, units in pods.items()
    }
    say(box, TopicKind.ALLOC, Alloc, pods=said)


def say_health(box: ModelBox, state: str) -> None:
    say(box, TopicKind.HEALTH, BoxHealth, state=state, parts=())


def listed(bed: Bed) -> dict[DeviceId, ListedBox]:
    return {box.device: box for box in bed.fleet.page(BoxFilter(), PageOrder(limit=500)).boxes}


def check(bed: Bed) -> None:
    """See that the list shows of each box what its records come to."""
    views, there = {view.device: view for view in bed.fleet.boxes()}, listed(bed)
    assert there.keys() == views.keys()
    for device, view in views.items():
        box, one = there[device], there[device].summary
        assert (box.name, box.labels, box.host, box.state) == (view.name, view.labels, view.host, view.state)
        assert (box.rev, box.observed_rev, box.applied_rev) == (view.rev, view.observed_rev, view.applied_rev)
        assert (box.connected, box.left, box.restored) == (view.online, view.left, view.restored)
        well_once = view.health == "ok" and not view.online  # what was wrong stays, what was well is not known
        assert box.health == (("" if well_once else view.health) or UNKNOWN_HEALTH)
        assert (one.waiting, one.problems, one.open_commands) == (view.waiting, view.problems, view.open_commands)
        assert (one.cluster, one.holder) == (view.cluster, view.holder)
        assert [one.agent, one.plugin, one.k3s, one.driver] == [
            view.versions.get(name, "") for name in ("agent", "plugin", "k3s", "driver")
        ]
        if view.capacity is None:
            assert one.cards is None
        else:
            numbers = ("cards", "shared_cards", "units", "free_units", "sharing")
            assert [getattr(one, name) for name in numbers] == [getattr(view.capacity, name) for name in numbers]


def acts(bed: Bed, rng: random.Random, device: DeviceId) -> None:
    """Do one thing that lists have to show."""
    box, fleet = bed.box(device), bed.fleet
    up = device not in bed.network.cut
    limits = ContainerLimits(namespace="default", app="asr", container="main", memory_units=rng.randrange(1, 9), core=1)
    verdict = rng.choice([Settlement.applied(), Settlement.rejected(ResultCode.PRECHECK, "no such app")])
    box.verdict = lambda _: verdict
    act = rng.choice(["command", "limits", "cut", "connect", "bye", "inventory", "pods", "health", "label", "cancel"])
    if act == "command":
        fleet.command(device, "doctor.run", {})
    elif act == "limits" and fleet.box(device).cluster:
        fleet.set_limits(device, limits)
    elif act == "cut" and up:
        bed.network.cut_off(device)
    elif act == "connect" and not up:
        bed.network.connect(box)
    elif act == "label":
        fleet.label(device, {"site": rng.choice(["hall", "yard", ""])})
    elif act == "cancel" and (open_ := [one for one in fleet.commands(device) if not one.ended]):
        fleet.cancel(open_[0].id)
    elif up:
        says(box, act, rng)


def says(box: ModelBox, act: str, rng: random.Random) -> None:
    if act == "inventory":
        say_inventory(box, units=rng.randrange(4, 20), healthy=rng.random() < 0.8, sharing=rng.random() < 0.8)
    elif act == "pods":
        say_pods(box, {f"asr-{number}-{'bcdfg'}": rng.randrange(1, 4) for number in range(rng.randrange(3))})
    elif act == "health":
        say_health(box, rng.choice(["ok", "warn", "bad"]))
    elif act == "bye":
        why = rng.choice(["stop", "upgrade", "uninstall"])
        say(box, TopicKind.STATUS, Goodbye, state="bye", why=why)


@pytest.mark.parametrize("seed", of_the_day(range(6), parts=3))
def test_whatever_happens_a_summary_is_what_the_records_come_to(tmp_path: Path, seed: int) -> None:
    bed = Bed(tmp_path, boxes=4, seed=seed, faults=Faults(lose=0.1, double=0.1, delay=0.1))
    rng = random.Random(seed)
    bed.connect_all()
    for step in range(80):
        acts(bed, rng, rng.choice(bed.devices))
        bed.pass_time(rng.choice([0.5, 5.0, 120.0]))
        if step % 8 == 7:
            check(bed)
    bed.fleet.revoke(bed.devices[0])
    bed.fleet.forget(bed.devices[1])
    bed.enrol(bed.devices[2], "anew", enrolment=2)
    with bed.store.write() as tx:
        tx.boxes.set_aside(bed.devices[3])
    check(bed)


def numbers(bed: Bed) -> ChangeNumbers:
    return bed.store.changed_boxes(None).numbers


def changed(bed: Bed, since: ChangeNumbers) -> list[DeviceId]:
    return sorted(bed.store.changed_boxes(since).boxes)


def test_reports_that_change_nothing_change_no_number(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=3)
    bed.connect_all()
    for device in bed.devices:
        say_inventory(bed.box(device), units=8)
        say_health(bed.box(device), "ok")
    bed.settle()
    before = numbers(bed)
    for _ in range(3):
        for device in bed.devices:
            bed.box(device).say_reported()
            say_inventory(bed.box(device), units=8)
            say_health(bed.box(device), "ok")
        bed.settle(60.0)
    assert numbers(bed) == before
    say_health(bed.box(bed.devices[1]), "bad")
    bed.settle()
    assert sum(numbers(bed)) == sum(before) + 1
    assert changed(bed, before) == [bed.devices[1]]


def test_what_only_the_page_of_a_box_shows_counts_as_a_change_too(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.connect_all()
    say_inventory(bed.box(), units=8)
    say_pods(bed.box(), {"asr-0": 2})
    bed.settle()
    before = sum(numbers(bed))
    say_pods(bed.box(), {"tts-0": 2})  # as many units: the list shows nothing else
    bed.settle()
    assert sum(numbers(bed)) == before + 1
    id_ = bed.fleet.command(bed.devices[0], "inventory.refresh", {})
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert sum(numbers(bed)) > before + 2  # it was asked, and it has ended


def test_what_many_boxes_say_at_once_raises_the_number_of_each_of_their_partitions_once(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=5)
    bed.connect_all()
    bed.settle()
    before = numbers(bed)
    for device in bed.devices:
        say_health(bed.box(device), "warn")
    bed.settle()
    partitions = set(map(partition_of, bed.devices))
    assert numbers(bed) == tuple(number + (at in partitions) for at, number in enumerate(before))
    assert changed(bed, before) == bed.devices
    assert changed(bed, numbers(bed)) == []


def test_a_box_that_was_forgotten_has_changed(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=2)
    before, gone = numbers(bed), bed.devices[0]
    bed.fleet.forget(gone)
    assert changed(bed, before) == [gone]
    assert list(listed(bed)) == [bed.devices[1]]


def test_boxes_are_found_by_the_apps_that_hold_shares_or_have_limits(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=2)
    bed.connect_all()
    bed.settle()
    first, second = bed.devices

    def having(app: str) -> list[DeviceId]:
        return [box.device for box in bed.fleet.page(BoxFilter(app=app)).boxes]

    say_inventory(bed.box(first), units=8)
    say_pods(bed.box(first), {"asr-7d9f8b6c5d-x2x4z": 2, "tts-0": 1})
    limits = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
    bed.fleet.set_limits(second, limits)
    bed.settle()
    assert (having("default/asr"), having("default/tts")) == ([first, second], [first])
    say_pods(bed.box(first), {"tts-0": 1})
    bed.fleet.forget_limits(second, "default", "asr")
    bed.settle()
    assert (having("default/asr"), having("default/tts")) == ([], [first])


def test_the_revision_that_brings_summaries_fills_them_as_the_program_does(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=4, seed=9)
    rng = random.Random(9)
    bed.connect_all()
    for _ in range(60):
        acts(bed, rng, rng.choice(bed.devices))
        bed.pass_time(5.0)
    say_pods(bed.box(bed.devices[0]), {"tts-0": 1})
    bed.settle()
    tables = ("box_summaries", "box_labels", "box_apps")
    engine = open_engine(f"sqlite:///{bed.path}")

    def rows() -> dict[str, set[tuple[object, ...]]]:
        with engine.connect() as connection:
            return {
                name: {tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))}  # noqa: S608
                for name in tables[1:]
            }

    before = rows()
    assert all(before.values())
    versions = [
        import_module(f"edgegpu_cloud.store.versions.{name}")
        for name in ("0002_summaries", "0017_changes", "0020_claims")
    ]
    with writing(engine).begin() as connection:
        for name in tables:
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(text("DELETE FROM meta WHERE key LIKE 'summaries/%'"))
        with Operations.context(MigrationContext.configure(connection)):
            for version in versions:
                version.upgrade()
    check(bed)
    assert rows() == before
    assert numbers(bed) == (1,) * PARTITIONS
    assert changed(bed, (0,) * PARTITIONS) == bed.devices
    engine.dispose()
