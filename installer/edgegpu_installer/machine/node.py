"""The Node object and the pods of a node, read by kubectl with a kubeconfig of the box."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from edgegpu_core.injection import NodeVersions
from edgegpu_installer.machine.programs import SYSTEM_PATH, ProgramResult, run

_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of a pod: the fields that decide which cards the nvidia runtime gives it."""

    name: str
    requests: frozenset[str]
    """Names of the extended resources that the container requests."""
    visible: str | None
    """Its NVIDIA_VISIBLE_DEVICES; None when the pod does not set it, so that its image decides."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the node: the fields that show whether another product hands out cards."""

    namespace: str
    name: str
    uid: str
    phase: str
    images: tuple[str, ...]
    requests: frozenset[str]
    """Names of the extended resources that its containers request."""
    containers: tuple[PodContainer, ...] = ()
    runtime_class: str = ""
    host_paths: frozenset[str] = frozenset()
    """The folders and files of the machine that it has as volumes."""

    @property
    def over(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in _TERMINAL


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Node object and its pods; `why` says what could not be read."""

    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    """What the node offers now: when a plugin goes, its allocatable falls at once, its capacity stays for minutes."""
    labels: Mapping[str, str]
    ready: bool
    pods: tuple[Pod, ...]
    why: str = ""
    versions: NodeVersions = field(default_factory=NodeVersions)
    """The versions of its kubelet and of its container runtime."""

    def has(self, resource: str) -> bool:
        """Return whether the node offers more than 0 of a resource."""
        return self.allocatable.get(resource, "0") not in {"", "0"}


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with one kubeconfig; `program` are the words that start it."""

    program: tuple[str, ...]
    kubeconfig: str
    path: str = SYSTEM_PATH
    timeout_s: float = 10.0

    def __call__(self, *words: str) -> ProgramResult:
        """Run kubectl; one request to the API may take half of `timeout_s`."""
        limit = f"--request-timeout={max(1, int(self.timeout_s / 2))}s"
        whole = (*self.program, "--kubeconfig", self.kubeconfig, limit, *words)
        return run(whole, timeout_s=self.timeout_s, path=self.path)


def read_node(kubectl: Kubectl, name: str) -> NodeSeen:
    """Return the node of that name and the pods on it; `why` of the result says what failed."""
    asked = kubectl("get", "node", name, "-o", "json")
    node = _json(asked)
    if node is None:
        return NodeSeen({}, {}, {}, ready=False, pods=(), why=asked.why or "kubectl's answer is no JSON")
    listed = kubectl("get", "pods", "-A", "--field-selector", f"spec.nodeName={name}", "-o", "json")
    pods = _json(listed)
    conditions = {c.get("type"): c.get("status") for c in node.get("status", {}).get("conditions", [])}
    return NodeSeen(
        capacity=_amounts(node, "capacity"),
        allocatable=_amounts(node, "allocatable"),
        labels=dict(node.get("metadata", {}).get("labels") or {}),
        ready=conditions.get("Ready") == "True",
        pods=tuple(map(_pod, (pods or {}).get("items", []))),
        why=listed.why if pods is None else "",
        versions=NodeVersions.of(node),
    )


def _amounts(node: dict[str, Any], field: str) -> dict[str, str]:
    return {str(name): str(amount) for name, amount in node.get("status", {}).get(field, {}).items()}


def _json(ran: ProgramResult) -> dict[str, Any] | None:
    try:
        value = json.loads(ran.out) if ran.well else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _pod(item: dict[str, Any]) -> Pod:
    meta, spec = item.get("metadata", {}), item.get("spec", {})
    listed = [*spec.get("initContainers", []), *spec.get("containers", [])]
    containers = tuple(map(_container, listed))
    return Pod(
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        phase=str(item.get("status", {}).get("phase", "")),
        images=tuple(str(container.get("image", "")) for container in listed),
        requests=frozenset(name for container in containers for name in container.requests),
        containers=containers,
        runtime_class=str(spec.get("runtimeClassName") or ""),
        host_paths=frozenset(_host_paths(spec)),
    )


def _host_paths(spec: dict[str, Any]) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        path = (volume.get("hostPath") or {}).get("path")
        if path:
            yield str(PurePosixPath(path))


def _container(item: dict[str, Any]) -> PodContainer:
    resources = item.get("resources") or {}
    asked = {name for kind in ("limits", "requests") for name in resources.get(kind) or {} if "/" in name}
    said = [one for one in item.get("env") or () if one.get("name") == "NVIDIA_VISIBLE_DEVICES"]
    return PodContainer(
        name=str(item.get("name", "")),
        requests=frozenset(asked),
        visible=str(said[-1].get("value", "")) if said else None,
    )
