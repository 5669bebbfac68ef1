"""The cluster of a box: its first report binds it, and who says otherwise later is not believed before an admin is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.clusterboxes import ClusterBox, put_boxes, report_again

from edgegpu_cloud.alerts.findings import findings
from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.errors import CloudError, ForbiddenError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolledBox

if TYPE_CHECKING:
    from edgegpu_cloud.store.store import ControllerStore

NOW_S = 1_790_000_000.0
HALL = BoxFilter(selector="site=hall", askable=True, one_of_each_cluster=True)
LIMITS = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
ARGS = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}
LABELS = {"site": "hall"}
TRUE = ClusterBox(number=1, name="b-server", cluster="c1c1c1c1", holder=True, labels=LABELS)
ROOTED = ClusterBox(number=2, name="a-rooted", cluster="c2c2c2c2", holder=True, labels=LABELS)
LIAR = replace(ROOTED, cluster="c1c1c1c1")


def fleet_of(store: ControllerStore, role: Role = Role.ADMIN) -> Fleet:
    return Fleet(store, clock=lambda: NOW_S, by="anna", role=role)


def alerts(store: ControllerStore) -> list[tuple[str, str]]:
    """Return the name of the box, and the text, of each alert about clusters."""
    with store.read() as tx:
        found = findings(tx, now_s=NOW_S, certificate_days=1, own=list)
        names = {box.device: box.name for box in tx.boxes.get([TRUE.device, ROOTED.device]).values()}
    return [(names.get(one.device, ""), one.text) for one in found if one.kind is AlertKind.CLUSTER]  # type: ignore[call-overload]  # an id, or empty


def outcomes(store: ControllerStore) -> dict[str, tuple[BoxOutcome, str]]:
    """Return what came of a change of limits in the hall, by the names of the boxes that were asked."""
    operations = Operations(store, clock=lambda: NOW_S, access=Access("anna"))
    id_ = operations.start(OperationKind.LIMITS, ARGS, where=HALL).operation.id
    runner = OperationRunner(store, clock=lambda: NOW_S)
    while runner.step():
        pass
    return {one.name: (one.box.outcome, one.box.text) for one in operations.boxes(id_, limit=10).boxes}


def test_a_box_that_reports_another_cluster_later_stays_in_its_own(store: ControllerStore) -> None:
    put_boxes(store, [TRUE, ROOTED], now_s=NOW_S)
    report_again(store, [LIAR], now_s=NOW_S)
    fleet = fleet_of(store)
    view = fleet.box("a-rooted")
    assert (view.cluster, view.claim, view.holder) == ("c2c2c2c2", "c1c1c1c1", False)
    [(name, text)] = alerts(store)
    assert name == "a-rooted"
    assert "the cluster c1c1c1c1, which does not count: it belongs to c2c2c2c2" in text
    with pytest.raises(CloudError, match="the cluster that it reports does not count") as refused:
        fleet.set_limits("a-rooted", LIMITS)
    assert "edgegpu-cloud boxes cluster a-rooted --accept" in refused.value.remedy
    assert fleet.set_limits("b-server", LIMITS).rev == 1, "the true box is not kept from its limits"
    report_again(store, [ROOTED], now_s=NOW_S)
    assert (fleet.box("a-rooted").claim, fleet.box("a-rooted").holder, alerts(store)) == ("", True, [])


def test_a_box_that_reports_no_cluster_for_a_while_is_bound_as_before(store: ControllerStore) -> None:
    put_boxes(store, [TRUE, ROOTED], now_s=NOW_S)
    for cluster in ("", "c1c1c1c1"):
        report_again(store, [replace(ROOTED, cluster=cluster or "", silent=False)], now_s=NOW_S)
    assert fleet_of(store).box("a-rooted").cluster == "c2c2c2c2"


def test_two_that_say_they_apply_one_clusters_limits_raise_an_alert_and_get_none(store: ControllerStore) -> None:
    put_boxes(store, [TRUE, LIAR], now_s=NOW_S)
    assert alerts(store) == [
        ("", "a-rooted, b-server say that they apply the limits of one cluster: one of them is wrong")
    ]
    fleet = fleet_of(store)
    for name in ("a-rooted", "b-server"):
        with pytest.raises(CloudError, match="2 boxes say that they apply the limits of its cluster"):
            fleet.set_limits(name, LIMITS)
    [(outcome, text)] = outcomes(store).values()
    assert outcome is BoxOutcome.REFUSED
    assert "2 boxes say that they apply the limits of its cluster" in text

    fleet.set_cluster("a-rooted", accept=False)
    assert fleet.box("a-rooted").cluster == ""
    assert [name for name, _ in alerts(store)] == ["a-rooted"], "it still says so"
    assert outcomes(store)["b-server"][0] is BoxOutcome.STORED
    report_again(store, [LIAR], now_s=NOW_S)
    assert (fleet.box("a-rooted").cluster, fleet.box("a-rooted").holder) == ("", False), "it stays refused"


def test_one_that_is_offline_is_no_rival_of_who_has_taken_over(store: ControllerStore) -> None:
    put_boxes(store, [replace(TRUE, online=False), LIAR], now_s=NOW_S)
    assert alerts(store) == []
    assert fleet_of(store).set_limits("a-rooted", LIMITS).rev == 1


def test_a_box_that_was_moved_is_accepted(store: ControllerStore) -> None:
    put_boxes(store, [ROOTED], now_s=NOW_S)
    report_again(store, [LIAR], now_s=NOW_S)
    fleet = fleet_of(store)
    with pytest.raises(ForbiddenError, match="say which cluster a box belongs to"):
        fleet_of(store, Role.OPERATOR).set_cluster("a-rooted", accept=True)
    fleet.set_cluster("a-rooted", accept=True)
    view = fleet.box("a-rooted")
    assert (view.cluster, view.claim, view.holder) == ("c1c1c1c1", "", True)
    assert alerts(store) == []
    assert fleet.set_limits("a-rooted", LIMITS).rev == 1
    with pytest.raises(CloudError, match="it reports none that does not count"):
        fleet.set_cluster("a-rooted", accept=True)
    fleet.set_cluster("a-rooted", accept=False)
    with pytest.raises(CloudError, match="it belongs to none"):
        fleet.set_cluster("a-rooted", accept=False)


def test_a_box_that_was_enrolled_anew_is_bound_anew(store: ControllerStore) -> None:
    put_boxes(store, [ROOTED], now_s=NOW_S)
    new = EnrolledBox(device=ROOTED.device, enrolment=2, public="A" * 43, instance="c" * 64, name="a-rooted")
    with store.write() as tx:
        add_box(tx, new, Author("setup", NOW_S))
    report_again(store, [LIAR], now_s=NOW_S)
    assert (fleet_of(store).box("a-rooted").cluster, alerts(store)) == ("c1c1c1c1", [])
