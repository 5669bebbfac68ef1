"""When alerts fire and end: nothing is told twice, what flaps is told once, many at once are told together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_cloud.alerts.rules import (
    ALONE,
    GATHER_S,
    PATIENCE,
    Alert,
    AlertEvent,
    AlertFinding,
    AlertKind,
    AlertStep,
    step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OFFLINE = PATIENCE[AlertKind.OFFLINE]


class World:
    """The alerts that a store would hold, and what was told."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.open: dict[str, Alert] = {}
        self.told: list[tuple[AlertEvent, Sequence[Alert]]] = []

    def look(self, *devices: str, kind: AlertKind = AlertKind.OFFLINE, after_s: float = 15.0) -> AlertStep:
        self.now_s += after_s
        findings = [AlertFinding(kind=kind, device=device, text="away") for device in devices]
        found = step(self.open.values(), findings, now_s=self.now_s)
        again = step(self._after(found).values(), findings, now_s=self.now_s)
        assert not again.told, "the same look again tells nothing"
        self.open = self._after(found)
        self.told += found.told
        return found

    def _after(self, found: AlertStep) -> dict[str, Alert]:
        after = {**self.open, **{one.key: one for one in found.changed}}
        gone = {one.key for one in found.dropped}
        return {key: one for key, one in after.items() if one.resolved_at_s is None and key not in gone}

    @property
    def events(self) -> list[tuple[AlertEvent, int]]:
        return [(event, len(alerts)) for event, alerts in self.told]


def test_what_lasts_fires_once_and_is_over_once() -> None:
    world = World()
    for _ in range(200):
        world.look("a")
    assert world.events == [(AlertEvent.FIRING, 1)]
    for _ in range(100):
        world.look()
    assert world.events == [(AlertEvent.FIRING, 1), (AlertEvent.RESOLVED, 1)]
    assert world.open == {}


def test_what_is_short_is_never_told() -> None:
    world = World()
    for _ in range(20):
        for _ in range(int(OFFLINE.fires_after_s / 15) - 1):
            world.look("a")
        world.look()
    assert world.events == []


def test_a_box_that_flaps_is_told_once() -> None:
    world = World()
    for _ in range(int(OFFLINE.fires_after_s / 15) + 2):
        world.look("a")
    for turn in range(500):
        world.look(*(["a"] if turn % int(OFFLINE.clears_after_s / 15) == 0 else []))
    assert world.events == [(AlertEvent.FIRING, 1)]


def test_a_sites_link_is_one_message_and_so_is_its_return() -> None:
    world = World()
    boxes = [f"box-{number:02}" for number in range(40)]
    gone: list[str] = []
    for number, box in enumerate(boxes):  # the broker notices one after the other
        gone.append(box)
        world.look(*gone, after_s=GATHER_S / 50 if number else 15)
    for _ in range(100):
        world.look(*boxes)
    assert world.events == [(AlertEvent.FIRING, 40)]
    while gone:
        gone.pop()
        world.look(*gone, after_s=1)
    for _ in range(100):
        world.look()
    assert world.events == [(AlertEvent.FIRING, 40), (AlertEvent.RESOLVED, 40)]


def test_a_few_are_told_one_by_one() -> None:
    world = World()
    for _ in range(100):
        world.look(*(f"box-{number}" for number in range(ALONE)))
    assert world.events == [(AlertEvent.FIRING, 1)] * ALONE


def test_of_a_silenced_alert_nobody_is_told() -> None:
    world = World()
    world.look("a")
    (held,) = world.open.values()
    world.open = {held.key: replace(held, silenced_until_s=world.now_s + 1e6)}
    for _ in range(200):
        world.look("a")
    assert [one.firing for one in world.open.values()] == [True]
    for _ in range(100):
        world.look()
    assert world.events == []


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcdefgh")), st.sampled_from([1.0, 15.0, 120.0, 1_000.0])), max_size=60
    ),
    st.sampled_from(list(AlertKind)),
)
def test_firing_and_resolved_alternate_for_each_box(looks: list[tuple[set[str], float]], kind: AlertKind) -> None:
    world = World()
    for devices, after_s in looks:
        world.look(*sorted(devices), kind=kind, after_s=after_s)
    for device in "abcdefgh":
        events = [event for event, alerts in world.told if _names(alerts, device)]
        assert events == [AlertEvent.FIRING, AlertEvent.RESOLVED] * (len(events) // 2) + [AlertEvent.FIRING] * (
            len(events) % 2
        )


def _names(alerts: Iterable[Alert], device: str) -> bool:
    return any(one.device == device for one in alerts)
