"""When a box that floods is blocked, and what blocks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.controller import Bed

from edgegpu_cloud.controller.broker_drops import (
    BLOCKED_BY,
    BLOCKED_TOPIC,
    REFUSED_FILTER,
    FloodBrake,
    FloodMeter,
    RefusedOfBox,
)
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.records import AuditFilter, BoxState
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import MessageArrived

if TYPE_CHECKING:
    from pathlib import Path

BOX = DeviceId("k3f9x2m7q1w8e5r4")


def reports(meter: FloodMeter, *excess: int, every_s: float = 10.0) -> list[bool]:
    return [meter.floods(BOX, number, at * every_s) for at, number in enumerate(excess)]


def test_a_flood_that_goes_on_is_one_and_a_burst_is_none() -> None:
    assert reports(FloodMeter(), 300_000) == [False]
    assert reports(FloodMeter(), 300_000, 1) == [False, False]
    assert reports(FloodMeter(), 5_000, 5_000, 5_000) == [False, False, True]
    assert reports(FloodMeter(), 300_000, 0, 0, every_s=7_000.0) == [False, False, False]


@given(st.lists(st.integers(400, int(FloodMeter.LEAK_PER_S * 10)), min_size=60, max_size=60))
def test_what_leaks_away_between_reports_is_no_flood_however_long_it_lasts(excess: list[int]) -> None:
    assert not any(reports(FloodMeter(), *excess))


@given(st.lists(st.integers(1_000, 100_000), min_size=20, max_size=20))
def test_twice_what_leaks_away_is_a_flood_within_minutes(excess: list[int]) -> None:
    assert any(reports(FloodMeter(), *excess, *excess))


def tell(bed: Bed, device: str, payload: bytes, *, times: int) -> None:
    """Let the guard report refusals of a box, ten seconds apart."""
    for _ in range(times):
        topic = REFUSED_FILTER.replace("+", device)
        bed.controller.inbox.put(
            MessageArrived(topic=topic, payload=payload, retained=False, mid=9_999, connection=bed.network.connection)
        )
        bed.settle(1)
        bed.world.now_s += 10


def guarded(folder: Path, *, blocks: bool = True, boxes: int = 3) -> Bed:
    return Bed(folder, boxes=boxes, guarded=True, blocks=blocks)


def told(bed: Bed) -> list[list[str]]:
    """Return the lists of blocked boxes that the guard was told."""
    return [payload.decode().split() for topic, payload in bed.network.seen_down if topic == BLOCKED_TOPIC]


FLOOD = b"5000 5000"


def test_a_box_that_goes_on_flooding_is_blocked_named_and_told_to_the_guard(tmp_path: Path) -> None:
    bed = guarded(tmp_path)
    bed.connect_all()
    bed.settle(2)
    assert told(bed) == [[]]
    device, other = bed.devices[:2]
    tell(bed, device, FLOOD, times=2)
    assert bed.fleet.box(device).state is BoxState.ENROLLED
    tell(bed, device, FLOOD, times=1)
    assert bed.fleet.box(device).state is BoxState.BLOCKED
    assert bed.fleet.box(other).state is BoxState.ENROLLED
    bed.settle(2)
    assert told(bed) == [[], [device]]
    (entry,) = bed.fleet.audit(AuditFilter(what="box.blocked"))
    assert (entry.by, entry.device) == (BLOCKED_BY, device)
    assert {alarm.kind: alarm.device for alarm in bed.fleet.alarms()} == {
        "broker.FLOOD": device,
        "broker.BLOCKED": device,
    }


def test_its_commands_wait_new_ones_are_refused_and_unblocked_it_goes_on(tmp_path: Path) -> None:
    bed = guarded(tmp_path)
    bed.connect_all()
    bed.settle(2)
    device = bed.devices[0]
    bed.network.cut_off(device)
    waiting = bed.fleet.command(device, "inventory.refresh", {})
    bed.fleet.set_blocked(device, blocked=True)
    for again in (
        lambda: bed.fleet.command(device, "inventory.refresh", {}),
        lambda: bed.fleet.set_blocked(device, blocked=True),
    ):
        with pytest.raises(CloudError, match=r"(?i)blocked"):
            again()
    bed.network.connect(bed.box(device))
    bed.settle(5)
    assert not bed.fleet.box(device).online
    assert bed.state(waiting) is None
    bed.fleet.set_blocked(device, blocked=False)
    bed.network.cut_off(device)
    bed.network.connect(bed.box(device))
    bed.until(bed.all_ended)
    assert bed.fleet.box(device).online
    assert told(bed)[-1] == []
    with pytest.raises(CloudError, match="it is not blocked"):
        bed.fleet.set_blocked(device, blocked=False)


def test_the_guard_is_told_anew_by_a_new_controller_and_after_the_broker_was_away(tmp_path: Path) -> None:
    bed = guarded(tmp_path)
    bed.connect_all()
    bed.fleet.set_blocked(bed.devices[1], blocked=True)
    bed.settle(2)
    for again in (bed.restart, lambda: bed.network.replaced(bed.controller)):
        before = len(told(bed))
        again()
        bed.settle(2)
        assert told(bed)[before:] == [[bed.devices[1]]]


def test_where_it_is_switched_off_the_alarm_is_all(tmp_path: Path) -> None:
    bed = guarded(tmp_path, blocks=False)
    bed.connect_all()
    tell(bed, bed.devices[0], FLOOD, times=9)
    assert bed.fleet.box(bed.devices[0]).state is BoxState.ENROLLED
    assert [alarm.kind for alarm in bed.fleet.alarms()] == ["broker.FLOOD"]


def test_a_broker_that_says_that_all_flood_has_three_blocked_and_no_more(tmp_path: Path) -> None:
    bed = guarded(tmp_path, boxes=6)
    bed.connect_all()
    for device in bed.devices:
        tell(bed, device, FLOOD, times=3)
    states = [bed.fleet.box(device).state for device in bed.devices]
    assert states.count(BoxState.BLOCKED) == FloodBrake.MOST


def test_what_is_no_box_of_ours_is_not_blocked(tmp_path: Path) -> None:
    brake = FloodBrake(guarded(tmp_path).store)
    for at in range(9):
        brake.on_refused(RefusedOfBox(BOX, 50_000, 0), float(at))


def test_without_a_guard_a_box_is_blocked_by_what_arrives(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    for minute in range(3):
        assert bed.fleet.box(bed.devices[0]).state is BoxState.ENROLLED
        FloodBrake.on_arrived(bed.controller._notices.brake, {bed.devices[0]: 16_000}, minute * 60.0)  # noqa: SLF001
    assert bed.fleet.box(bed.devices[0]).state is BoxState.BLOCKED
    bed.settle(2)
    assert told(bed) == []
