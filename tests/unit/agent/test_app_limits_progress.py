"""How far a rollout is, as it is read from the workload and its pods."""

from typing import Any

import pytest
from kits.limitscases import manifest
from kits.limitsworld import MODEL

from edgegpu_agent.app_limits.drift import writer
from edgegpu_agent.app_limits.patches import ASIDE, aside_patch, back_patch, merged, replicas_patch
from edgegpu_agent.app_limits.progress import RolloutStage, limits_reason, owns, progress, selector
from edgegpu_agent.kube.apps import FoundWorkload, WorkloadRef
from edgegpu_base.kube import Json
from edgegpu_core.limits.workload import WorkloadKind
from edgegpu_core.request import RequestedAmounts
from edgegpu_sim.api.objects import ObjectSelector


def found(kind: WorkloadKind, status: Json, **spec: Any) -> FoundWorkload:  # noqa: ANN401
    item = manifest(kind.value, "asr", memory=10, **spec)
    item["metadata"] |= {"uid": "u", "generation": 2, "resourceVersion": "7"}
    return FoundWorkload(WorkloadRef(kind, "default", "asr"), item | {"status": {"observedGeneration": 2, **status}})


def pod(memory: int = 10, *, node: str = "box-1", phase: str = "Running", **status: Any) -> Json:  # noqa: ANN401
    item = manifest("Deployment", "asr", memory=memory)["spec"]["template"]
    owner = {"kind": "ReplicaSet", "name": "asr-77", "uid": "r", "controller": True}
    metadata = {"name": "asr-77-x", "namespace": "default", "labels": {"app": "asr"}, "ownerReferences": [owner]}
    spec = {**item["spec"], **({"nodeName": node} if node else {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def unschedulable(words: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return pod(node="", phase="Pending", conditions=[condition])


def stage_of(kind: WorkloadKind, status: Json, *pods: Json, **spec: Any) -> RolloutStage:  # noqa: ANN401
    return progress(found(kind, status, **spec), pods, "main", RequestedAmounts(10, 1), model=MODEL).stage


ALL = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("kind", "status", "stage"),
    [
        (WorkloadKind.DEPLOYMENT, ALL, RolloutStage.DONE),
        (WorkloadKind.DEPLOYMENT, {**ALL, "observedGeneration": 1}, RolloutStage.GOING),
        (WorkloadKind.DEPLOYMENT, {**ALL, "replicas": 2}, RolloutStage.GOING),
        (WorkloadKind.STATEFUL_SET, {**ALL, "currentRevision": "a", "updateRevision": "a"}, RolloutStage.DONE),
        (
            WorkloadKind.STATEFUL_SET,
            {**ALL, "updatedReplicas": 0, "currentRevision": "a", "updateRevision": "b"},
            RolloutStage.GOING,
        ),
        (
            WorkloadKind.DAEMON_SET,
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2},
            RolloutStage.DONE,
        ),
        (
            WorkloadKind.DAEMON_SET,
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2},
            RolloutStage.GOING,
        ),
    ],
)
def test_done_is_what_the_controller_says_of_this_generation(
    kind: WorkloadKind, status: Json, stage: RolloutStage
) -> None:
    assert stage_of(kind, status) is stage


def test_the_limits_are_blamed_for_what_names_them_only() -> None:
    ours = unschedulable("0/1 nodes are available: 1 Insufficient baidu.com/vcuda-memory.")
    theirs = unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    assert stage_of(WorkloadKind.DEPLOYMENT, {}, ours) is RolloutStage.BLOCKED
    assert stage_of(WorkloadKind.DEPLOYMENT, {}, theirs) is RolloutStage.GOING
    leaving = pod(4)
    leaving["metadata"]["deletionTimestamp"] = "now"
    assert stage_of(WorkloadKind.DEPLOYMENT, {}, ours, leaving) is RolloutStage.GOING, "room is about to be made"


@pytest.mark.parametrize(
    ("one", "blamed"),
    [
        (pod(phase="Failed", reason="UnexpectedAdmissionError", message="no room"), True),
        (pod(phase="Failed", reason="OutOfbaidu.com/vcuda-memory"), True),
        (pod(phase="Failed", reason="OutOfcpu"), False),
        (pod(phase="Failed", reason="Evicted"), False),
        (
            pod(containerStatuses=[{"name": "main", "state": {"waiting": {"message": "edgegpu: refused: needs 9"}}}]),
            True,
        ),
        (pod(containerStatuses=[{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]), False),
    ],
)
def test_blame(one: Json, *, blamed: bool) -> None:
    assert bool(limits_reason(one, MODEL)) is blamed


def test_quota_is_blamed_where_it_is_ours() -> None:
    def status(words: str) -> Json:
        return {"conditions": [{"type": "ReplicaFailure", "message": words}]}

    ours = "exceeded quota: q, requested: requests.baidu.com/vcuda-memory=10"
    assert stage_of(WorkloadKind.DEPLOYMENT, status(ours)) is RolloutStage.BLOCKED
    assert stage_of(WorkloadKind.DEPLOYMENT, status("exceeded quota: q, requested: cpu=1")) is RolloutStage.GOING


def test_pods_with_cards_and_another_trouble_are_placed() -> None:
    broken = pod(
        phase="Pending", containerStatuses=[{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}]
    )
    far = progress(found(WorkloadKind.DEPLOYMENT, {}), [broken], "main", RequestedAmounts(10, 1), model=MODEL)
    assert (far.stage, far.text) == (RolloutStage.PLACED, "container main of asr-77-x: ErrImagePull")
    assert stage_of(WorkloadKind.DEPLOYMENT, {}, broken, replicas=2) is RolloutStage.GOING


def test_whose_a_pod_is() -> None:
    app = found(WorkloadKind.DEPLOYMENT, {})
    assert owns(app, pod())
    changes: list[Json] = [{"namespace": "other"}, {"labels": {}}, {"ownerReferences": []}]
    for change in changes:
        stranger = pod()
        stranger["metadata"] |= change
        assert not owns(app, stranger)
    expressions = [{"key": "app", "operator": op, "values": ["asr"]} for op in ("In", "Exists")]
    assert owns(found(WorkloadKind.DEPLOYMENT, {}, selector={"matchExpressions": expressions}), pod())
    not_in = [{"key": "app", "operator": "NotIn", "values": ["asr"]}]
    assert not owns(found(WorkloadKind.DEPLOYMENT, {}, selector={"matchExpressions": not_in}), pod())


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (WorkloadKind.DEPLOYMENT, {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
        (WorkloadKind.DAEMON_SET, {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
        (WorkloadKind.STATEFUL_SET, {"replicas": 3}),
    ],
)
def test_what_is_put_aside_comes_back_as_it_was(kind: WorkloadKind, spec: Json) -> None:
    app = found(kind, {}, **spec)
    change = aside_patch(app)
    assert change["spec"] != spec
    noted = FoundWorkload(app.ref, merged(app.item, change))
    back = back_patch(noted)
    assert back is not None
    assert back["spec"] == spec
    assert back["metadata"]["annotations"] == {ASIDE: None}
    assert back_patch(app) is None
    assert replicas_patch(app, 0)["spec"] == {"replicas": 0}


def test_who_took_limits_away_is_who_wrote_last() -> None:
    app = found(WorkloadKind.DEPLOYMENT, {})
    app.item["metadata"]["managedFields"] = [
        {"manager": "helm", "time": "2026-01-01T00:00:00Z", "fieldsV1": {}},
        {"manager": "kubectl-edit", "time": "2026-02-01T00:00:00Z", "fieldsV1": {}},
        {"manager": "edgegpu-agent", "time": "2026-03-01T00:00:00Z", "fieldsV1": {}},
        {"manager": "k3s", "time": "2026-04-01T00:00:00Z", "subresource": "status"},
    ]
    assert writer(app, "main", MODEL) == "kubectl-edit"
    app.item["metadata"]["managedFields"] = []
    assert writer(app, "main", MODEL) == ""


def test_the_selector_is_written_as_the_api_takes_it() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "old", "operator": "NotIn", "values": ["yes"]},
        {"key": "x", "operator": "Exists"},
        {"key": "y", "operator": "DoesNotExist"},
    ]
    asked = found(
        WorkloadKind.DEPLOYMENT, {}, selector={"matchLabels": {"app": "asr"}, "matchExpressions": expressions}
    )
    text = selector(asked)
    assert text == "!y,app=asr,old notin (yes),tier in (a,b),x"
    labels = {"app": "asr", "tier": "b", "x": ""}
    for more, fits in (({}, True), ({"old": "yes"}, False), ({"y": ""}, False), ({"tier": "c"}, False)):
        one = pod()
        one["metadata"]["labels"] = labels | more
        assert owns(asked, one) is fits
        assert ObjectSelector.parse(text).matches(one) is fits
