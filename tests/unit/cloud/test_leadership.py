"""Rollouts, operations and alerts of several controllers: one that was stopped while it led writes nothing afterwards.

A stopped controller is one whose clock stands: it has asked whether it leads just before it was stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.stores import open_store

from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.alerts.service import Alerts, AlertTask
from edgegpu_cloud.controller.leases import PartitionLeases
from edgegpu_cloud.controller.partitions import LeaseTimes
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import RolloutStrategy
from edgegpu_cloud.store.controllers.leadership import LeasesLostError
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES, ANNA = LeaseTimes(), Access("anna")
DEVICE = device_id("0" * 15 + "1")
SPREAD = SharingSettings(policy="spread")
CONFIG = AlertConfig(webhook=WebhookConfig(urls=("https://hooks.example.com/",), secret="sixteen and more"))  # noqa: S106


class Clock:
    """Seconds by one controller's clock."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Site:
    """A store with a box, a controller that led until it was stopped, and the one that leads now."""

    def __init__(self, store: ControllerStore) -> None:
        self.store, self.clock, self._stands = store, Clock(), Clock()
        with store.write() as tx:
            box = EnrolledBox(device=DEVICE, enrolment=1, public="x" * 43, instance="ab", name="box-1")
            add_box(tx, box, Author("setup", 1.0))
        self.stopped = self._leases("stopped", self._stands)
        while not self.stopped.leads:
            self._stands.now_s += TIMES.look_s
            self.stopped.look()
        self.leader = self._leases("leader", self.clock)
        while not self.leader.leads:
            self.clock.now_s += TIMES.look_s
            self.leader.look()
        assert self.stopped.leads, "it has not noticed"

    def _leases(self, name: str, clock: Clock) -> PartitionLeases:
        return PartitionLeases(self.store, name, shared=True, place=name, times=TIMES, clock=clock, steady=clock)

    def rev(self) -> int:
        with self.store.read() as tx:
            return tx.boxes.get([DEVICE])[DEVICE].spec_rev


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    store = open_store(store_url)
    yield Site(store)
    store.close()


def test_a_stopped_leader_takes_no_step_of_a_rollout(site: Site) -> None:
    with site.store.write() as tx:
        box = tx.boxes.get([DEVICE])[DEVICE]
        tx.boxes.put([replace(box, online=True, seen_at_s=site.clock())])
    rollouts = Rollouts(site.store, clock=site.clock, access=ANNA)
    number = rollouts.start(RolloutRequest(change=SPREAD, strategy=RolloutStrategy(), boxes=["box-1"]))
    before = (rollouts.show(number), rollouts.boxes(number))
    RolloutRunner(site.store, leadership=site.stopped, clock=site.clock).step()
    assert ((rollouts.show(number), rollouts.boxes(number)), site.rev()) == (before, 0)
    RolloutRunner(site.store, leadership=site.leader, clock=site.clock).step()
    assert (rollouts.show(number), rollouts.boxes(number)) != before


def test_a_stopped_leader_stores_nothing_of_an_operation(site: Site) -> None:
    operations = Operations(site.store, clock=site.clock, access=ANNA)
    id_ = operations.start(OperationKind.SHARING, {"policy": "spread"}, devices=[DEVICE]).operation.id
    assert not OperationRunner(site.store, leadership=site.stopped, clock=site.clock).step()
    assert (operations.get(id_).outcomes, site.rev()) == ({BoxOutcome.QUEUED: 1}, 0)
    assert OperationRunner(site.store, leadership=site.leader, clock=site.clock).step()
    assert (operations.get(id_).outcomes, site.rev()) == ({BoxOutcome.STORED: 1}, 1)


def test_a_stopped_leader_finds_no_alert_and_sends_no_message(site: Site) -> None:
    alerts = Alerts(site.store, CONFIG, access=ANNA, clock=site.clock)
    with site.store.write() as tx:
        tx.notes.alarm("CLONED", device=DEVICE, text="two machines", now_s=site.clock())
    stopped, leader = (
        AlertTask(site.store, CONFIG, controller=name, leadership=leases, clock=site.clock)
        for name, leases in (("stopped", site.stopped), ("leader", site.leader))
    )
    with pytest.raises(LeasesLostError):
        stopped.look()
    assert (alerts.list(), alerts.waiting()) == ([], (0, ""))
    leader.look()
    assert [one.alert.kind for one in alerts.list()] == [AlertKind.ALARM]
    assert alerts.waiting()[0] == 1
    with pytest.raises(LeasesLostError):
        stopped.send()
    with site.store.read() as tx:
        assert tx.alerts.waiting() == (1, ""), "nobody has tried to send it"


def test_who_does_not_lead_begins_nothing(site: Site) -> None:
    site.stopped.give_up(site.stopped.held)
    operations = Operations(site.store, clock=site.clock, access=ANNA)
    operations.start(OperationKind.SHARING, {"policy": "spread"}, devices=[DEVICE])
    assert not OperationRunner(site.store, leadership=site.stopped, clock=site.clock).step()
    RolloutRunner(site.store, leadership=site.stopped, clock=site.clock).step()
    with pytest.raises(LeasesLostError), site.stopped.lead():
        pass
    assert site.rev() == 0
