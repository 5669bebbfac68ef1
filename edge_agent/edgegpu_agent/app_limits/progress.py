"""The stage of a rollout, from the workload and its pods: done, going on, or blocked by the limits. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from edgegpu_agent.kube.apps import FoundWorkload
from edgegpu_base.kube import Json
from edgegpu_core.limits.readers import container_of
from edgegpu_core.limits.workload import WorkloadKind
from edgegpu_core.model import ResourceModel, short_name
from edgegpu_core.podview import amounts_of
from edgegpu_core.request import RequestedAmounts

_REFUSED = "edgegpu: refused"
_ADMISSION = "UnexpectedAdmissionError"
_BROKEN = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "CrashLoopBackOff",
        "CreateContainerError",
        "CreateContainerConfigError",
        "RunContainerError",
    }
)


class RolloutStage(Enum):
    """The stage of a rollout."""

    GOING = "going"
    DONE = "done"
    """All pods have the limits and are available."""
    BLOCKED = "blamed"
    """The limits keep a pod from being placed or admitted, and no pod of the app is leaving to make room."""
    PLACED = "placed"
    """All pods have their cards; something else keeps the app from being available."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The stage of a rollout, and a text about it for people; `changed`: somebody else wrote other limits meanwhile."""

    stage: RolloutStage
    text: str = ""
    changed: bool = False


def owned(found: FoundWorkload, pods: Iterable[Json]) -> list[Json]:
    """Return the pods of a workload, including those that have ended."""
    return [pod for pod in pods if owns(found, pod)]


def owns(found: FoundWorkload, pod: Json) -> bool:
    """Return whether a workload owns a pod: by selector and controller, for a Deployment by one of its ReplicaSets."""
    metadata = pod["metadata"]
    if metadata.get("namespace") != found.ref.namespace or not _selected(found, metadata.get("labels") or {}):
        return False
    owner: Json = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    if found.ref.kind is WorkloadKind.DEPLOYMENT:
        return owner.get("kind") == "ReplicaSet" and str(owner.get("name")).startswith(f"{found.ref.name}-")
    return bool(owner.get("uid") == found.uid)


def selector(found: FoundWorkload) -> str:
    """Return a workload's pod selector in the form that the API's lists and watches take."""
    asked = found.spec.get("selector") or {}
    parts = [f"{key}={value}" for key, value in (asked.get("matchLabels") or {}).items()]
    for one in asked.get("matchExpressions") or ():
        among = f"({','.join(one.get('values') or ())})"
        match one["operator"]:
            case "In":
                parts.append(f"{one['key']} in {among}")
            case "NotIn":
                parts.append(f"{one['key']} notin {among}")
            case "Exists":
                parts.append(str(one["key"]))
            case _:
                parts.append(f"!{one['key']}")
    return ",".join(sorted(parts))


def _selected(found: FoundWorkload, labels: dict[str, str]) -> bool:
    selector = found.spec.get("selector") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(one, labels) for one in selector.get("matchExpressions") or ())


def _meets(one: Json, labels: dict[str, str]) -> bool:
    value, among = labels.get(one["key"]), one.get("values") or ()
    match one["operator"]:
        case "In":
            return value in among
        case "NotIn":
            return value not in among
        case "Exists":
            return value is not None
        case _:
            return value is None


def has_amounts(spec: Json, container: str, request: RequestedAmounts, model: ResourceModel) -> bool:
    """Return whether a pod spec's container is limited to exactly these amounts."""
    found = container_of(spec, container)
    return found is not None and amounts_of(found[1], model) == request


def progress(
    found: FoundWorkload, pods: Sequence[Json], container: str, request: RequestedAmounts, *, model: ResourceModel
) -> Progress:
    """Return the stage of a rollout of these amounts.

    Args:
        found: the workload as it is now.
        pods: the pods that the workload owns.
        container: the container that has the amounts.
        request: the amounts to which the container is to be limited.
        model: the resource names.
    """
    if _is_done(found):
        return Progress(RolloutStage.DONE)
    fresh = [pod for pod in pods if not _is_leaving(pod) and has_amounts(pod["spec"], container, request, model)]
    leaving = any(_is_leaving(pod) for pod in pods)
    for pod in fresh:
        why = limits_reason(pod, model)
        if why:
            stage = RolloutStage.GOING if leaving else RolloutStage.BLOCKED
            return Progress(stage, why)
    why = _quota(found, model)
    if why:
        return Progress(RolloutStage.BLOCKED, why)
    alive = [pod for pod in fresh if pod["status"].get("phase") != "Failed" and pod["spec"].get("nodeName")]
    trouble = next(filter(None, (_trouble(pod) for pod in fresh)), "")
    if len(alive) >= _count(found) > 0 and not leaving and len(alive) == len(fresh):
        return Progress(RolloutStage.PLACED, trouble or "its pods are not ready yet")
    return Progress(RolloutStage.GOING, trouble)


def _is_leaving(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _count(found: FoundWorkload) -> int:
    """Return how many pods are to get the new template."""
    status, spec = found.item.get("status") or {}, found.spec
    if found.ref.kind is WorkloadKind.DAEMON_SET:
        return int(status.get("desiredNumberScheduled") or 0)
    partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition") or 0
    return max(0, int(spec.get("replicas", 1)) - int(partition))


def _is_done(found: FoundWorkload) -> bool:
    status = found.item.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(found.item["metadata"].get("generation") or 0):
        return False

    def number(name: str) -> int:
        return int(status.get(name) or 0)

    count = _count(found)
    match found.ref.kind:
        case WorkloadKind.DEPLOYMENT:
            same = number("updatedReplicas") == number("replicas") == count
            return same and number("availableReplicas") >= count
        case WorkloadKind.STATEFUL_SET:
            replicas = int(found.spec.get("replicas", 1))
            whole = number("readyReplicas") >= replicas and number("replicas") == replicas
            # once all pods are updated, the controller counts them as current
            updated = (
                status.get("currentRevision") == status.get("updateRevision") or number("updatedReplicas") >= count
            )
            return whole and updated
        case WorkloadKind.DAEMON_SET:
            return number("updatedNumberScheduled") == count and number("numberAvailable") >= count


def limits_reason(pod: Json, model: ResourceModel) -> str:
    """Return why the limits keep a pod from its card, in the words of the component that refused it; else ""."""
    status = pod["status"]
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    names = _names(model)
    if status.get("phase") == "Failed" and (reason == _ADMISSION or reason.startswith("OutOf")):
        return f"{reason}: {message}" if reason == _ADMISSION or any(n in reason for n in names) else ""
    for one in status.get("conditions") or ():
        said = str(one.get("message") or "")
        if one.get("type") == "PodScheduled" and one.get("status") == "False" and any(n in said for n in names):
            return said
    waiting = (_waiting(one).get("message") or "" for one in _containers(pod))
    return next((str(said) for said in waiting if _REFUSED in str(said)), "")


def _names(model: ResourceModel) -> tuple[str, ...]:
    """Return the words by which a refusal because of our resources is known."""
    return tuple({short_name(model.memory_resource), short_name(model.core_resource), "whole empty card"})


def _quota(found: FoundWorkload, model: ResourceModel) -> str:
    conditions = (found.item.get("status") or {}).get("conditions") or ()
    said = (str(one.get("message")) for one in conditions if one.get("type") == "ReplicaFailure")
    return next((one for one in said if "exceeded quota" in one and any(n in one for n in _names(model))), "")


def _containers(pod: Json) -> list[Json]:
    status = pod["status"]
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(container: Json) -> dict[str, Any]:
    return (container.get("state") or {}).get("waiting") or {}


def _trouble(pod: Json) -> str:
    """Return what keeps a pod from running other than its limits."""
    for one in _containers(pod):
        reason = str(_waiting(one).get("reason") or "")
        if reason in _BROKEN:
            return f"container {one.get('name')} of {pod['metadata']['name']}: {reason}"
    return ""
