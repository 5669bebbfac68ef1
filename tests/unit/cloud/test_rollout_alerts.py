"""Alerts that a rollout has raised end with it, and say why; they stay while what they say stands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.stores import open_store

from edgegpu_cloud.alerts.service import Alerts, AlertTask
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.layout import AlertConfig
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import RolloutStrategy
from edgegpu_cloud.store.alerts.tables import AlertFilter
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.rollouts.records import RolloutState
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgegpu_cloud.store.store import ControllerStore

ANNA = Access("anna")
NOW_S = 1_000.0
OVER = AlertFilter(over=True)


class Site:
    """A store with a box, and a rollout to it that was stopped by an error."""

    def __init__(self, store: ControllerStore) -> None:
        self.store, self.now_s = store, NOW_S
        with store.write() as tx:
            box = EnrolledBox(device=device_id("0" * 15 + "1"), enrolment=1, public="x" * 43, instance="ab", name="b")
            add_box(tx, box, Author("setup", 1.0))
        self.rollouts = Rollouts(store, access=ANNA, clock=self.clock)
        self.alerts = Alerts(store, AlertConfig(), access=ANNA, clock=self.clock)
        self.task = AlertTask(store, AlertConfig(), controller="c", clock=self.clock)

    def clock(self) -> float:
        return self.now_s

    def start(self) -> int:
        change = SharingSettings(policy="spread")
        return self.rollouts.start(RolloutRequest(change=change, strategy=RolloutStrategy()))

    def alarm(self, number: int, kind: str = "STOPPED") -> None:
        with self.store.write() as tx:
            tx.notes.alarm(f"rollout.{kind}/{number}", device="", text=f"rollout {number}: 3 failed", now_s=self.now_s)

    def put(self, number: int, state: RolloutState) -> None:
        with self.store.write() as tx:
            rollout = tx.rollouts.get(number)
            assert rollout is not None
            tx.rollouts.put(replace(rollout, state=state))

    def look(self) -> list[str]:
        """Return what the alerts say that fire after a look."""
        self.now_s += 15
        self.task.look()
        return [one.alert.text for one in self.alerts.list()]

    def over(self) -> list[str]:
        return [one.alert.text for one in self.alerts.list(where=OVER)]


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    store = open_store(store_url)
    yield Site(store)
    store.close()


def test_an_alert_stays_while_its_rollout_is_held_and_ends_when_a_person_has_aborted_it(site: Site) -> None:
    number, other = site.start(), 77
    for one in (number, other):
        site.alarm(one)
    site.put(number, RolloutState.PAUSED)
    with site.store.write() as tx:
        tx.notes.alarm("keys.LOST", device="", text="another cause", now_s=NOW_S)
    assert "rollout 1: 3 failed" in site.look()
    assert sorted(site.look()) == ["another cause", "rollout 1: 3 failed"], "a rollout that is not kept has none"
    site.rollouts.abort(number)
    assert "rollout 1: 3 failed" in site.look(), "it is aborting"
    RolloutRunner(site.store, clock=site.clock).step()
    assert site.rollouts.show(number).state is RolloutState.ABORTED
    assert site.look() == ["another cause"]
    assert "rollout 1 was aborted. It was: rollout 1: 3 failed" in site.over()
    with site.store.read() as tx:
        assert [one.kind for one in tx.notes.alarms()] == ["keys.LOST"]
    assert site.look() == ["another cause"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (RolloutState.RUNNING, "rollout 1 goes on"),
        (RolloutState.DONE, "rollout 1 is done"),
        (RolloutState.RETURNED, "rollout 1 was taken back"),
    ],
)
@pytest.mark.parametrize("kind", ["STOPPED", "ERROR"])
def test_each_end_has_its_reason_and_is_told_after_the_alert_itself(
    site: Site, kind: str, state: RolloutState, reason: str
) -> None:
    number = site.start()
    site.alarm(number, kind)
    site.put(number, state)
    assert site.look() == ["rollout 1: 3 failed"], "people hear of it first"
    assert site.look() == []
    assert site.over() == [f"{reason}. It was: rollout 1: 3 failed"]


def test_a_rollout_that_a_gate_has_stopped_fires_until_a_later_one_has_ended_well(site: Site) -> None:
    number = site.start()
    site.alarm(number)
    site.put(number, RolloutState.STOPPED)
    for _ in range(3):
        assert site.look() == ["rollout 1: 3 failed"]
    later = site.start()
    assert site.look() == ["rollout 1: 3 failed"]
    site.put(later, RolloutState.DONE)
    assert site.look() == []
    assert site.over() == ["rollout 2 has changed the same since. It was: rollout 1: 3 failed"]


def test_an_alarm_whose_kind_only_looks_like_a_rollouts_stays(site: Site) -> None:
    kinds = ("rollout.STOPPED/x", "rollout.STOPPED", "box.STOPPED/1", "rollout.STOPPED/٣")
    with site.store.write() as tx:
        for kind in kinds:
            tx.notes.alarm(kind, device="", text=kind, now_s=NOW_S)
    site.look()
    assert sorted(site.look()) == sorted(kinds)
