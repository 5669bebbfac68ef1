"""A pod's status as kubelet reports it, from its containers and their errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegpu_sim.api.objects import Json, now_text
from edgegpu_sim.kubelet.runtime import SimContainer


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """The reason why a container waits."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSnapshot:
    """A pod's containers and their errors at one moment."""

    spec: Json
    containers: Mapping[str, SimContainer]
    troubles: Mapping[str, WaitingReason] = field(default_factory=dict)
    now_s: float
    ended: bool = False
    """Whether the pod is being ended, so that no container is started any more."""

    def is_done(self, name: str) -> bool:
        """Return whether a container ran and ended."""
        return name in self.containers and not self.containers[name].is_running(self.now_s)

    def runs(self, name: str) -> bool:
        """Return whether a container runs."""
        return name in self.containers and self.containers[name].is_running(self.now_s)

    def failed(self, name: str) -> bool:
        """Return whether a container ended with an error."""
        return self.is_done(name) and self.containers[name].ends_with != 0


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Return whether an init container keeps running beside the apps."""
    return container.get("restartPolicy") == "Always"


def initialised(seen: PodSnapshot) -> bool:
    """Return whether all init containers have ended well, or run as sidecars."""
    return all(
        seen.runs(c["name"]) if is_sidecar(c) else seen.is_done(c["name"]) and not seen.failed(c["name"])
        for c in seen.spec.get("initContainers") or ()
    )


def phase(seen: PodSnapshot) -> str:
    """Return the pod's phase."""
    policy = seen.spec.get("restartPolicy", "Always")
    names = [c["name"] for c in seen.spec["containers"]]
    inits = [c["name"] for c in seen.spec.get("initContainers") or () if not is_sidecar(c)]
    failed = any(seen.failed(name) for name in names)
    if seen.ended and not any(seen.runs(name) for name in seen.containers):
        return "Failed" if failed or not all(name in seen.containers for name in names) else "Succeeded"
    if policy == "Never" and any(seen.failed(name) for name in inits):
        return "Failed"
    if not all(name in seen.containers for name in names):
        return "Pending"
    if policy == "Always" or any(seen.runs(name) for name in names) or (failed and policy == "OnFailure"):
        return "Running"
    return "Failed" if failed else "Succeeded"


def pod_status(seen: PodSnapshot, *, host_ip: str, started: str) -> Json:
    """Return the pod's whole status."""
    done = initialised(seen)
    apps = [_container_status(seen, c, initialised=done) for c in seen.spec["containers"]]
    inits = [_container_status(seen, c, initialised=True) for c in seen.spec.get("initContainers") or ()]
    ready = all(one["ready"] for one in apps)
    conditions = [
        _condition("PodScheduled", met=True),
        _condition("Initialized", met=done),
        _condition("ContainersReady", met=ready),
        _condition("Ready", met=ready),
    ]
    return {
        "phase": phase(seen),
        "conditions": conditions,
        "hostIP": host_ip,
        "podIP": host_ip,
        "startTime": started,
        "containerStatuses": apps,
        **({"initContainerStatuses": inits} if inits else {}),
    }


def _condition(name: str, *, met: bool) -> Json:
    return {"type": name, "status": "True" if met else "False"}


def _container_status(seen: PodSnapshot, container: Mapping[str, Any], *, initialised: bool) -> Json:
    name = container["name"]
    have, trouble = seen.containers.get(name), seen.troubles.get(name)
    status: Json = {
        "name": name,
        "image": container.get("image", "sim"),
        "imageID": "",
        "ready": seen.runs(name),
        "started": seen.runs(name),
        "restartCount": have.attempt if have else 0,
    }
    if have is not None:
        status["containerID"] = have.id
        if seen.is_done(name) and trouble is not None:
            status["lastState"] = {"terminated": _terminated(have)}
    if have is not None and trouble is None:
        began = {"startedAt": now_text(have.started_s)}
        status["state"] = {"running": began} if seen.runs(name) else {"terminated": _terminated(have)}
        return status
    waiting = trouble or WaitingReason("ContainerCreating" if initialised else "PodInitializing")
    shown = {"reason": waiting.reason, **({"message": waiting.message} if waiting.message else {})}
    status["state"] = {"waiting": shown}
    return status


def _terminated(container: SimContainer) -> Json:
    return {
        "exitCode": container.ends_with,
        "reason": "Completed" if container.ends_with == 0 else "Error",
        "startedAt": now_text(container.started_s),
        "finishedAt": now_text(container.ends_s),
        "containerID": container.id,
    }
