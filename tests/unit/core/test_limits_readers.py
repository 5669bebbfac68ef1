"""What is read of workloads, nodes, pods and quotas, and what a template looks like after a change."""

from typing import Any

import pytest
from kits.limitscases import manifest

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.limits.capacity import Quota
from edgegpu_core.limits.nodes import Constraints, NodeRequirement, Taint, Toleration, read_constraints, read_taints
from edgegpu_core.limits.readers import container_of, new_pod, own_pod, read_node, read_quota, with_amounts
from edgegpu_core.limits.workload import UpdateStrategy, WorkloadKind, read_workload
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, write_report
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import amounts_of, pod_view
from edgegpu_core.request import RequestedAmounts

MODEL = ResourceModel()
OTHER = ResourceModel(memory_resource="acme.io/mem", core_resource="acme.io/core")


@pytest.mark.parametrize(
    ("replicas", "strategy", "surge", "unavailable"),
    [
        (1, {}, 1, 0),  # 25 % of 1: surge up, unavailable down
        (4, {}, 1, 1),
        (5, {}, 2, 1),
        (10, {"rollingUpdate": {"maxSurge": "30%", "maxUnavailable": "30%"}}, 3, 3),
        (3, {"rollingUpdate": {"maxSurge": "34%", "maxUnavailable": "34%"}}, 2, 1),
        (3, {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}, 2, 0),
        (3, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}, 0, 1),  # both 0: one may be missing
        (2, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 5}}, 0, 2),
        (3, {"type": "Recreate"}, 0, 3),
        (0, {}, 0, 0),
    ],
)
def test_a_deployments_fenceposts(replicas: int, strategy: dict[str, Any], surge: int, unavailable: int) -> None:
    found = read_workload(
        WorkloadKind.DEPLOYMENT, manifest("Deployment", "a", memory=1, replicas=replicas, strategy=strategy)
    )
    assert (found.surge, found.unavailable) == (surge, unavailable)
    assert found.stops_first is (surge == 0)


def test_the_other_kinds() -> None:
    item = manifest("StatefulSet", "a", memory=1, replicas=3)
    item["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    found = read_workload(WorkloadKind.STATEFUL_SET, item)
    assert (found.strategy, found.replicas, found.partition) == (UpdateStrategy.ROLLING_UPDATE, 3, 2)
    item = manifest("DaemonSet", "a", memory=1, updateStrategy={"rollingUpdate": {"maxSurge": "10%"}})
    found = read_workload(WorkloadKind.DAEMON_SET, item)
    assert (found.strategy, found.surge, found.unavailable) == (UpdateStrategy.ROLLING_UPDATE, 1, 0)
    assert any(one.key.endswith("not-ready") for one in found.constraints.tolerations)
    item["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert read_workload(WorkloadKind.DAEMON_SET, item).strategy is UpdateStrategy.ON_DELETE


def test_where_a_pod_may_go() -> None:
    terms = [
        {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["box-9"]}]},
        {},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "1", "effect": "NoExecute"}],
    }
    where = read_constraints(spec)
    assert not where.refusal("box-1", {"gen": "4"}, ())
    assert not where.refusal("box-9", {}, [Taint("a", "x"), Taint("b", "1", "NoExecute")])
    assert "affinity" in where.refusal("box-1", {"gen": "3"}, ())
    assert "affinity" in where.refusal("box-1", {"gen": "new"}, ())
    assert "taint b=1" in where.refusal("box-9", {}, [Taint("b", "1", "NoSchedule")])
    assert "bound to node box-2" in Constraints(node_name="box-2").refusal("box-1", {}, ())
    assert not Constraints(tolerations=(Toleration(exists=True),)).refusal("x", {}, [Taint("any")])


@pytest.mark.parametrize(
    ("operator", "values", "labels", "holds"),
    [
        ("In", ("a",), {"k": "a"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {}, True),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("Exists", (), {"k": ""}, True),
        ("DoesNotExist", (), {"k": ""}, False),
        ("Lt", ("3",), {"k": "2"}, True),
        ("Gt", (), {"k": "2"}, False),
        ("Near", ("a",), {"k": "a"}, False),
    ],
)
def test_an_expression(operator: str, values: tuple[str, ...], labels: dict[str, str], *, holds: bool) -> None:
    assert NodeRequirement("k", operator, values).holds(labels, "box-1") is holds


def test_a_cordoned_node_is_tainted_even_before_it_says_so() -> None:
    assert read_taints({"spec": {"unschedulable": True}}) == (Taint("node.kubernetes.io/unschedulable"),)
    assert (
        len(read_taints({"spec": {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}}))
        == 1
    )


def node_object(report: NodeReport | None, units: int) -> dict[str, Any]:
    text = {} if report is None else {REPORT_ANNOTATION: write_report(report)}
    return {
        "metadata": {"name": "box-1", "labels": {"x": "y"}, "annotations": text},
        "status": {"allocatable": {"baidu.com/vcuda-memory": str(units), "baidu.com/vcuda-core": "100"}},
    }


def report_of(held: dict[str, tuple[Share, ...]]) -> NodeReport:
    return NodeReport(
        boot="b", generation=1, time="t", policy=Policy.BEST_FIT, unit_mib=512, core_required=False,
        slots=(CardCapacity("GPU-0", "0", 29), CardCapacity("GPU-1", "1", 29)), held=held,
    )  # fmt: skip


def pod_object(uid: str, memory: int, *, phase: str = "Running") -> dict[str, Any]:
    limits = {"baidu.com/vcuda-memory": str(memory), "baidu.com/vcuda-core": "1"}
    return {
        "metadata": {"uid": uid, "name": f"app-{uid}-2", "namespace": "default"},
        "spec": {"nodeName": "box-1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


def test_a_node_is_believed_by_its_report_then_by_a_guess() -> None:
    pods = [
        pod_view(pod_object(uid, 20, phase=phase), MODEL)
        for uid, phase in (("a", "Running"), ("b", "Running"), ("c", "Failed"))
    ]
    room = read_node(node_object(report_of({"a": (Share("GPU-0", 20, 1),)}), 58), [p for p in pods if p], MODEL)
    assert room.held == {"a": (Share("GPU-0", 20, 1),), "b": (Share("GPU-1", 20, 1),)}
    assert (room.policy, room.model.unit_mib, room.model.core_required) == (Policy.BEST_FIT, 512, False)
    assert (room.problem, room.stale) == ("", False)


def test_a_node_that_takes_no_pod_says_why_and_whether_that_passes() -> None:
    behind = read_node(node_object(report_of({}), 0), (), MODEL)
    assert (behind.problem, behind.stale) == ("its inventory is not current: 58 units, kubelet offers 0", True)
    bare = read_node(node_object(None, 0), (), MODEL)
    assert (bare.problem, bare.stale) == ("has no GPU sharing", False)


def test_a_changed_template_and_its_pod() -> None:
    template = manifest("Deployment", "a", memory=4)["spec"]["template"]
    template["spec"]["containers"][0]["resources"] |= {"requests": {"cpu": "1", "baidu.com/vcuda-memory": "4"}}
    template["spec"]["initContainers"] = [{"name": "first"}]
    more = with_amounts(template, "main", RequestedAmounts(10, 2), MODEL)
    assert amounts_of(more["spec"]["containers"][0], MODEL) == RequestedAmounts(10, 2)
    assert more["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert amounts_of(template["spec"]["containers"][0], MODEL) == RequestedAmounts(4, 1)
    assert not new_pod(with_amounts(template, "main", RequestedAmounts(0, 0), MODEL), MODEL).containers
    assert new_pod(with_amounts(template, "first", RequestedAmounts(2, 1), MODEL), MODEL).need == RequestedAmounts(4, 1)
    assert with_amounts(template, "nobody", RequestedAmounts(1, 1), MODEL) == template
    assert container_of(template["spec"], "nobody") is None
    named = with_amounts(template, "main", RequestedAmounts(3, 3), OTHER)
    assert new_pod(named, OTHER).containers[0].request == RequestedAmounts(3, 3)
    assert "no policy" in new_pod({**more, "metadata": {"annotations": {"edgegpu.io/policy": "x"}}}, MODEL).problem


def test_an_own_pod() -> None:
    found = own_pod(pod_object("a", 20), MODEL)
    assert (found.uid, found.node, found.ordinal, found.need, found.terminating) == (
        "a",
        "box-1",
        2,
        RequestedAmounts(20, 1),
        False,
    )


def test_quotas_the_tightest_counts_and_scoped_ones_do_not() -> None:
    hard = {"requests.baidu.com/vcuda-memory": "20", "count/pods": "5"}
    quotas: list[dict[str, Any]] = [
        {"spec": {"hard": hard}, "status": {"hard": hard, "used": {"requests.baidu.com/vcuda-memory": "8"}}},
        {"spec": {"hard": {"requests.baidu.com/vcuda-memory": "1k", "pods": "3"}}},
        {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}},
        {"spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": []}}},
    ]
    assert read_quota(quotas, MODEL) == Quota(units=12, core=None, pods=3)
    assert read_quota([], MODEL) == Quota()
