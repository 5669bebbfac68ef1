"""A workload: how many pods it has and how Kubernetes replaces them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from edgegpu_core.limits.nodes import Constraints, read_constraints

_DEFAULT_SHARE = "25%"
ANYWHERE = Constraints()


class WorkloadKind(Enum):
    """The kind of an app's workload object."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"


class UpdateStrategy(Enum):
    """How a workload's pods are replaced when their template changes."""

    ROLLING_UPDATE = "RollingUpdate"
    """Deployment: some new pods start beside the old ones, some old ones end, in turn. StatefulSet: one pod at a time
    ends and is made anew, from the last to the first. DaemonSet: on each node the old pod ends before the new one
    starts; with surge the new one starts first."""
    RECREATE = "Recreate"
    """Of a Deployment: all old pods end, then the new ones start."""
    ON_DELETE = "OnDelete"
    """Each pod is replaced when somebody deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An app's workload. A DaemonSet has one pod on each node that its constraints allow, whatever `replicas` says."""

    kind: WorkloadKind
    strategy: UpdateStrategy
    replicas: int = 1
    surge: int = 0
    """Pods that may exist beyond `replicas` during an update."""
    unavailable: int = 0
    """Pods that may be missing during an update."""
    partition: int = 0
    """Pods of a StatefulSet below this ordinal keep their template."""
    paused: bool = False
    constraints: Constraints = ANYWHERE

    @property
    def stops_first(self) -> bool:
        """Whether the update strategy ends old pods before there are new ones."""
        return self.surge == 0


def read_workload(kind: WorkloadKind, item: Mapping[str, Any]) -> Workload:
    """Read a workload object of the API."""
    spec = item.get("spec") or {}
    update = spec.get("strategy") or spec.get("updateStrategy") or {}
    rolling = update.get("rollingUpdate") or {}
    strategy = next((one for one in UpdateStrategy if one.value == update.get("type")), UpdateStrategy.ROLLING_UPDATE)
    constraints = read_constraints(spec.get("template", {}).get("spec") or {}, daemon=kind is WorkloadKind.DAEMON_SET)
    replicas = int(1 if spec.get("replicas") is None else spec["replicas"])
    workload = Workload(kind=kind, strategy=strategy, replicas=replicas, constraints=constraints)
    match kind:
        case WorkloadKind.DEPLOYMENT:
            recreate = strategy is UpdateStrategy.RECREATE
            surge, unavailable = (0, replicas) if recreate else fenceposts(update, replicas)
            return replace(workload, surge=surge, unavailable=unavailable, paused=bool(spec.get("paused")))
        case WorkloadKind.STATEFUL_SET:
            return replace(workload, unavailable=1, partition=int(rolling.get("partition") or 0))
        case WorkloadKind.DAEMON_SET:
            surge = min(1, pods_of(rolling.get("maxSurge") or 0, 100, up=True))
            return replace(workload, surge=surge, unavailable=1 - surge)


def fenceposts(strategy: Mapping[str, Any], replicas: int) -> tuple[int, int]:
    """Return a RollingUpdate's surge and unavailable pods, as the Deployment controller computes them.

    Percentages of `replicas`: surge rounded up, unavailable down; where both come to 0, one may be unavailable
    (`ResolveFenceposts` in kubernetes/pkg/controller/deployment/util).
    """
    rolling = strategy.get("rollingUpdate") or {}
    surge = pods_of(_given(rolling, "maxSurge"), replicas, up=True)
    unavailable = pods_of(_given(rolling, "maxUnavailable"), replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


def _given(rolling: Mapping[str, Any], name: str) -> object:
    value = rolling.get(name)
    return _DEFAULT_SHARE if value is None else value


def pods_of(value: object, replicas: int, *, up: bool) -> int:
    """Read a number of pods or a percentage of `replicas`, rounded up or down; 0 when the value is neither."""
    text = str(value).strip()
    share = text.endswith("%")
    digits = text.removesuffix("%")
    if not digits.isdecimal():
        return 0
    if not share:
        return int(digits)
    whole, rest = divmod(int(digits) * replicas, 100)
    return whole + (1 if up and rest else 0)
