"""Builders that the tests of app limits share: nodes with what is held, apps, and the changes asked of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from property.cases import box, slots_of

from edgegpu_core.limits.capacity import NewPod, NodeRoom, OwnPod, Quota
from edgegpu_core.limits.nodes import Constraints, Taint
from edgegpu_core.limits.verdict import LimitsChange
from edgegpu_core.limits.workload import UpdateStrategy, Workload, WorkloadKind
from edgegpu_core.placement import Share
from edgegpu_core.request import RequestedAmounts

ANYWHERE = Constraints()
NO_QUOTA = Quota()


def node(
    name: str,
    units: Sequence[int],
    held: Mapping[str, tuple[int, int]] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    problem: str = "",
) -> NodeRoom:
    """Return a node whose cards have `units`; `held`: pod to card number and the units it holds there, core 1."""
    slots = slots_of(*units)
    shares = {uid: (Share(slots[card].uuid, amount, 1),) for uid, (card, amount) in (held or {}).items()}
    return NodeRoom(name=name, slots=slots, held=shares, labels=labels or {}, taints=tuple(taints), problem=problem)


def own(*uids: str, units: int = 1, where: str = "box-1", terminating: Sequence[str] = ()) -> tuple[OwnPod, ...]:
    """Return the app's pods; their ordinals are their places."""
    return tuple(
        OwnPod(uid=uid, node=where, ordinal=at, terminating=uid in terminating, need=RequestedAmounts(units, 1))
        for at, uid in enumerate(uids)
    )


def rolling(replicas: int, surge: int, unavailable: int, *, where: Constraints = ANYWHERE) -> Workload:
    return Workload(
        kind=WorkloadKind.DEPLOYMENT,
        strategy=UpdateStrategy.ROLLING_UPDATE,
        replicas=replicas,
        surge=surge,
        unavailable=unavailable,
        constraints=where,
    )


def recreate(replicas: int = 1, *, where: Constraints = ANYWHERE, paused: bool = False) -> Workload:
    return Workload(
        kind=WorkloadKind.DEPLOYMENT,
        strategy=UpdateStrategy.RECREATE,
        replicas=replicas,
        unavailable=replicas,
        constraints=where,
        paused=paused,
    )


def stateful(
    replicas: int, *, partition: int = 0, strategy: UpdateStrategy = UpdateStrategy.ROLLING_UPDATE
) -> Workload:
    return Workload(
        kind=WorkloadKind.STATEFUL_SET, strategy=strategy, replicas=replicas, unavailable=1, partition=partition
    )


def daemon(*, surge: int = 0, where: Constraints = ANYWHERE) -> Workload:
    return Workload(
        kind=WorkloadKind.DAEMON_SET,
        strategy=UpdateStrategy.ROLLING_UPDATE,
        surge=surge,
        unavailable=1 - surge,
        constraints=where,
    )


def asks(memory: int, core: int = 1, *, others: Sequence[tuple[int, int]] = ()) -> NewPod:
    """Return the pod as changed: its container main, and other GPU containers."""
    more = [box(f"other-{at}", *amounts) for at, amounts in enumerate(others)]
    return NewPod(containers=(box("main", memory, core), *more))


def change(
    workload: Workload,
    pod: NewPod,
    *rooms: NodeRoom,
    pods: tuple[OwnPod, ...] = (),
    quota: Quota = NO_QUOTA,
    at_most: int | None = None,
    before: int = 0,
) -> LimitsChange:
    """Return a case; `before`: the units that the container has now, core 1."""
    first = pod.containers[0].request if pod.containers else RequestedAmounts(0, 0)
    return LimitsChange(
        workload=workload,
        request=first,
        before=RequestedAmounts(before, 1),
        pod=pod,
        own=pods,
        rooms=rooms,
        quota=quota,
        at_most=at_most,
    )


def manifest(kind: str, name: str, *, memory: int, core: int = 1, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a workload object as the API has it, with one container main."""
    limits = {"baidu.com/vcuda-memory": str(memory), "baidu.com/vcuda-core": str(core)} if memory else {}
    pod = {"containers": [{"name": "main", "image": "app", "resources": {"limits": limits}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        }
        | spec,
    }
