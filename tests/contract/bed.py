"""The cluster that a contract test runs on: the embedded one here, a real k3s in tests/e2e."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from edgegpu_core.ledger import CheckpointEntry, parse_checkpoint
from edgegpu_plugin.pb import PodDevices, PodResourcesCaller, channel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edgegpu_sim.cluster import EmbeddedCluster

T = TypeVar("T")
Json = dict[str, Any]


class Bed(Protocol):
    """What a contract test may do; all objects live in the bed's own namespace."""

    @property
    def namespace(self) -> str: ...

    @property
    def nodes(self) -> Sequence[str]: ...

    def apply(self, manifest: Json) -> None: ...

    def delete(self, kind: str, name: str, *, grace_s: int | None = None) -> None: ...

    def get(self, kind: str, name: str) -> Json | None:
        """Return a Pod, Deployment or Node, or None."""

    def pods(self, labels: str = "") -> list[Json]: ...

    def events(self, name: str) -> list[str]:
        """Return an object's events as `REASON: message`."""

    def exec(self, pod: str, *command: str, container: str = "") -> str:
        """Return what a command in the pod prints; AssertionError when it fails."""

    def devices_folder(self, node: str) -> Path:
        """Return kubelet's device-plugin folder, as the test reaches it."""

    def checkpoint(self, node: str) -> tuple[CheckpointEntry, ...]: ...

    def pod_resources(self, node: str) -> list[PodDevices]: ...

    def restart_kubelet(self, node: str) -> None: ...

    def start_plugin(self, node: str) -> None: ...

    def kill_plugin(self, node: str) -> None: ...

    def cards(self, node: str) -> list[str]:
        """Return the UUIDs of the node's cards in PCI order."""

    def wait(self, look: Callable[[], T], *, what: str, timeout_s: float | None = None) -> T:
        """Look until there is something true; the bed knows how long its cluster may take."""


class EmbeddedBed:
    """The embedded cluster as a bed."""

    namespace = "contract"

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    @property
    def nodes(self) -> Sequence[str]:
        return list(self.cluster.nodes)

    def apply(self, manifest: Json) -> None:
        placed = {**manifest["metadata"], "namespace": self.namespace}
        self.cluster.apply({**manifest, "metadata": placed})

    def delete(self, kind: str, name: str, *, grace_s: int | None = None) -> None:
        self.cluster.delete(kind, self.namespace, name, grace_s=grace_s)

    def get(self, kind: str, name: str) -> Json | None:
        return self.cluster.get(kind, self.namespace, name)

    def pods(self, labels: str = "") -> list[Json]:
        return self.cluster.pods(self.namespace, labels)

    def events(self, name: str) -> list[str]:
        return self.cluster.events(self.namespace, name)

    def exec(self, pod: str, *command: str, container: str = "") -> str:
        done = self.cluster.exec(self.namespace, pod, *command, container=container)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def devices_folder(self, node: str) -> Path:
        return self.cluster.nodes[node].kubelet.devices_folder

    def checkpoint(self, node: str) -> tuple[CheckpointEntry, ...]:
        return parse_checkpoint((self.devices_folder(node) / "kubelet_internal_checkpoint").read_text())

    def pod_resources(self, node: str) -> list[PodDevices]:
        with channel(str(self.cluster.nodes[node].kubelet.resources_folder / "kubelet.sock")) as link:
            return PodResourcesCaller(link).list(5)

    def restart_kubelet(self, node: str) -> None:
        self.cluster.nodes[node].restart_kubelet()

    def start_plugin(self, node: str) -> None:
        self.cluster.start_plugin(node)

    def kill_plugin(self, node: str) -> None:
        self.cluster.kill_plugin(node)

    def cards(self, node: str) -> list[str]:
        return [card.uuid for card in sorted(self.cluster.nodes[node].spec.cards, key=lambda card: card.pci)]

    def wait(self, look: Callable[[], T], *, what: str, timeout_s: float | None = None) -> T:
        return self.cluster.wait(look, timeout_s=timeout_s or 10.0, what=what)


def pod(name: str, limits: dict[str, int] | None = None, *, init: Sequence[Json] = (), **spec: object) -> Json:
    """A pod with one container `main` that runs until it is told to end."""
    whole = {"terminationGracePeriodSeconds": 1, "initContainers": list(init), "containers": [main(limits)], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def main(limits: dict[str, int] | None = None, *, name: str = "main", **more: object) -> Json:
    """A container."""
    texts = {resource: str(amount) for resource, amount in (limits or {}).items()}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": {"limits": texts}, **more}


def phase(bed: Bed, name: str) -> str:
    found = bed.get("Pod", name)
    return "" if found is None else str(found["status"].get("phase", ""))


def waiting_for(bed: Bed, name: str) -> str:
    """Why the pod's containers wait: reasons and messages."""
    found = bed.get("Pod", name)
    states = [
        s.get("state", {}).get("waiting") or {} for s in (found or {}).get("status", {}).get("containerStatuses") or ()
    ]
    return "; ".join(f"{w['reason']}: {w.get('message', '')}" for w in states if w)


IMAGE = "edgegpu.test/pause:1"
"""The image that every bed has: it waits for ever, and knows `true`, `false` and `sleep N`."""
