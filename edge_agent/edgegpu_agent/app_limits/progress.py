"""How far a rollout is, read from the workload and its pods: done, going on, or kept from it by the limits. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from edgegpu_agent.kube import FoundWorkload, Json
from edgegpu_core.limits import WorkloadKind, amounts_of, container_of
from edgegpu_core.model import ResourceModel, short_name
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
    """How far it is."""

    GOING = "going"
    DONE = "done"
    """All pods have the limits and are available."""
    BLAMED = "blamed"
    """A pod cannot be placed or admitted because of them, and nothing of the app is about to make room."""
    PLACED = "placed"
    """All pods have their cards; what keeps the app from being available is something else."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rollout is, and what there is to say."""

    stage: RolloutStage
    text: str = ""


def owned(found: FoundWorkload, pods: Iterable[Json]) -> list[Json]:
    """Return the pods of a workload, those that have ended too."""
    return [pod for pod in pods if owns(found, pod)]


def owns(found: FoundWorkload, pod: Json) -> bool:
    """Say whether a pod is of a workload: by its selector and its controller, for a Deployment a ReplicaSet of it."""
    metadata = pod["metadata"]
    if metadata.get("namespace") != found.ref.namespace or not _selected(found, metadata.get("labels") or {}):
        return False
    owner: Json = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    if found.ref.kind is WorkloadKind.DEPLOYMENT:
        return owner.get("kind") == "ReplicaSet" and str(owner.get("name")).startswith(f"{found.ref.name}-")
    return bool(owner.get("uid") == found.uid)


def selector(found: FoundWorkload) -> str:
    """Return a workload's selector of pods as the API's lists and watches take it."""
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
    """Say whether a pod spec's container is limited to exactly these amounts."""
    found = container_of(spec, container)
    return found is not None and amounts_of(found[1], model) == request


def progress(
    found: FoundWorkload, pods: Sequence[Json], container: str, request: RequestedAmounts, *, model: ResourceModel
) -> Progress:
    """Say how far a rollout of these amounts is.

    Args:
        found: the workload as it is now.
        pods: its own.
        container: whose amounts.
        request: what it is to be limited to.
        model: resource names.
    """
    if _is_done(found):
        return Progress(RolloutStage.DONE)
    fresh = [pod for pod in pods if not _is_leaving(pod) and has_amounts(pod["spec"], container, request, model)]
    leaving = any(_is_leaving(pod) for pod in pods)
    for pod in fresh:
        why = blame(pod, model)
        if why:
            stage = RolloutStage.GOING if leaving else RolloutStage.BLAMED
            return Progress(stage, why)
    why = _quota(found, model)
    if why:
        return Progress(RolloutStage.BLAMED, why)
    alive = [pod for pod in fresh if pod["status"].get("phase") != "Failed" and pod["spec"].get("nodeName")]
    trouble = next(filter(None, (_trouble(pod) for pod in fresh)), "")
    if len(alive) >= _count(found) > 0 and not leaving and len(alive) == len(fresh):
        return Progress(RolloutStage.PLACED, trouble or "its pods are not ready yet")
    return Progress(RolloutStage.GOING, trouble)


def _is_leaving(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _count(found: FoundWorkload) -> int:
    """Return how many pods get the template."""
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
            # once all are updated the controller counts them as current ones
            updated = (
                status.get("currentRevision") == status.get("updateRevision") or number("updatedReplicas") >= count
            )
            return whole and updated
        case WorkloadKind.DAEMON_SET:
            return number("updatedNumberScheduled") == count and number("numberAvailable") >= count


def blame(pod: Json, model: ResourceModel) -> str:
    """Return why the limits keep a pod from its card, in the words of who refused it; empty when they do not."""
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
    """Return what a refusal because of our resources names."""
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
    """Return what keeps a pod from running that is no matter of its limits."""
    for one in _containers(pod):
        reason = str(_waiting(one).get("reason") or "")
        if reason in _BROKEN:
            return f"container {one.get('name')} of {pod['metadata']['name']}: {reason}"
    return ""
