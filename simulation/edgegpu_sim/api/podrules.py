"""The API server's rules for pods, and the parts of a pod that only certain requests may write."""

import time
from typing import Any

from edgegpu_sim.api.errors import conflict, invalid
from edgegpu_sim.api.objects import Json, now_text

DEFAULT_GRACE_S = 30
_TERMINAL = {"Succeeded", "Failed"}


def prepare(pod: Json) -> Json:
    """Return a new pod with its defaults.

    Raises:
        ApiError: 422, requests of extended resources differ from their limits.
    """
    name = pod["metadata"]["name"]
    spec = {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": DEFAULT_GRACE_S,
        "enableServiceLinks": True,
        **(pod.get("spec") or {}),
    }
    if not spec.get("containers"):
        raise invalid("Pod", name, "spec.containers: Required value")
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [
                _prepare_container(name, container, f"spec.{part}[{index}]")
                for index, container in enumerate(spec[part])
            ]
    status = {"phase": "Pending", "qosClass": "BestEffort", **(pod.get("status") or {})}
    return {**pod, "spec": spec, "status": status}


def _prepare_container(pod: str, container: Json, where: str) -> Json:
    resources: Json = container.get("resources") or {}
    limits: Json = resources.get("limits") or {}
    requests: Json = resources.get("requests") or {}
    for resource, value in {**limits, **requests}.items():
        if "/" not in resource:
            continue
        path = f"{where}.resources"
        if not str(value).rstrip("kKMi").isdigit():
            raise invalid("Pod", pod, f'{path}.limits[{resource}]: Invalid value: "{value}": must be an integer')
        if resource not in limits:
            why = "Limit must be set for non overcommitable resources"
            raise invalid("Pod", pod, f"{path}.limits: Required value: {why}")
        if str(requests.get(resource, limits[resource])) != str(limits[resource]):
            why = f'Invalid value: "{requests[resource]}": must be equal to {resource} limit of {limits[resource]}'
            raise invalid("Pod", pod, f"{path}.requests: {why}")
    if not limits:
        return container
    texts = {key: str(value) for key, value in limits.items()}
    merged = {**texts, **{key: str(value) for key, value in requests.items()}}
    return {**container, "resources": {**resources, "limits": texts, "requests": merged}}


def check_change(old: Json, new: Json) -> None:
    """Refuse a change of a pod's spec (images aside).

    Raises:
        ApiError: 422.
    """
    if _frozen(old["spec"]) != _frozen(new["spec"]):
        why = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
        raise invalid("Pod", old["metadata"]["name"], why)


def _frozen(spec: Json) -> Json:
    part = {key: value for key, value in spec.items() if key not in {"activeDeadlineSeconds", "tolerations"}}
    for name in ("initContainers", "containers"):
        part[name] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(name) or ()]
    return part


def bound(pod: Json, binding: Json) -> Json:
    """Return the pod after a binding: node and annotations in one write.

    Raises:
        ApiError: 409, another pod of this name, a pod that is being deleted, or one that has a node.
    """
    name, metadata = pod["metadata"]["name"], pod["metadata"]
    asked = binding.get("metadata") or {}
    check_uid("pods/binding", pod, asked.get("uid"))
    if metadata.get("deletionTimestamp"):
        raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        node = pod["spec"]["nodeName"]
        raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{node}"')
    annotations = {**(metadata.get("annotations") or {}), **(asked.get("annotations") or {})}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
    return {
        **pod,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": {**pod["status"], "conditions": with_condition(pod["status"], condition)},
    }


def with_condition(status: Json, condition: Json) -> list[Json]:
    """Return a status's conditions with one condition set."""
    return [c for c in status.get("conditions") or () if c["type"] != condition["type"]] + [condition]


def check_uid(resource: str, item: Json, uid: Any) -> None:  # noqa: ANN401  (foreign JSON)
    """Refuse a request for another object of the same name.

    Raises:
        ApiError: 409.
    """
    have = item["metadata"]["uid"]
    if uid and uid != have:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {have}"
        raise conflict(resource, item["metadata"]["name"], why)


def check_version(resource: str, item: Json, version: Any) -> None:  # noqa: ANN401  (foreign JSON)
    """Refuse a write that is based on an older version.

    Raises:
        ApiError: 409.
    """
    if version and str(version) != item["metadata"]["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(resource, item["metadata"]["name"], why)


def deleted(pod: Json, options: Json) -> Json | None:
    """Return the pod after a deletion request; None when it is removed at once.

    A pod that was never placed, one that has ended, and one with grace 0 are removed at once; others wait for kubelet.
    """
    grace = options.get("gracePeriodSeconds")
    metadata, spec = pod["metadata"], pod["spec"]
    grace_s = int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S) if grace is None else grace)
    if not spec.get("nodeName") or pod["status"].get("phase") in _TERMINAL:
        grace_s = 0
    if grace_s <= 0:
        return None
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
        return pod
    stamp = now_text(time.time() + grace_s)
    return {**pod, "metadata": {**metadata, "deletionTimestamp": stamp, "deletionGracePeriodSeconds": grace_s}}
