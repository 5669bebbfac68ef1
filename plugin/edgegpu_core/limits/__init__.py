"""Verdicts whether an app has room under new limits, before they are applied: on boxes and in the cloud's previews."""

from edgegpu_core.limits.capacity import NewPod, NodeRoom, OwnPod, Quota
from edgegpu_core.limits.judge import CardNumbers, FitResult, LimitsChange, LimitsVerdict, by_hand, judge
from edgegpu_core.limits.nodes import Constraints, NodeRequirement, Taint, Toleration
from edgegpu_core.limits.readers import container_of, new_pod, own_pod, read_node, read_quota, with_amounts
from edgegpu_core.limits.workload import UpdateStrategy, Workload, WorkloadKind, read_workload
from edgegpu_core.podview import amounts_of

__all__ = [
    "CardNumbers",
    "Constraints",
    "FitResult",
    "LimitsChange",
    "LimitsVerdict",
    "NewPod",
    "NodeRequirement",
    "NodeRoom",
    "OwnPod",
    "Quota",
    "Taint",
    "Toleration",
    "UpdateStrategy",
    "Workload",
    "WorkloadKind",
    "amounts_of",
    "by_hand",
    "container_of",
    "judge",
    "new_pod",
    "own_pod",
    "read_node",
    "read_quota",
    "read_workload",
    "with_amounts",
]
