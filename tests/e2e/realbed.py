"""The real k3s as a bed of the contract suite: what the embedded kubelet is held to, the real one does as well."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from e2e.k3s import K3s
from e2e.plugin_node import KUBELET
from lab.labkit import IMAGE, LabError, wait_until

from edgegpu_core.ledger import CheckpointEntry
from edgegpu_plugin.pb import PodDevices

T = TypeVar("T")
Json = dict[str, Any]

PATIENCE_S = 120.0
_NUMBERS = itertools.count(1)


class RealBed:
    """One node of the cluster, with a namespace of its own."""

    def __init__(self, k3s: K3s, node: str) -> None:
        self.cluster = k3s
        self._node = node
        self.namespace = f"contract-{next(_NUMBERS)}"
        k3s.kubectl("create", "namespace", self.namespace)

    @property
    def nodes(self) -> Sequence[str]:
        """The one node."""
        return [self._node]

    def apply(self, manifest: Json) -> None:
        """Create or change an object; pods go to the bed's node, with an image that this cluster has."""
        placed = json.loads(json.dumps(manifest))
        placed["metadata"]["namespace"] = self.namespace
        spec = placed["spec"].get("template", placed)["spec"]
        if "nodeName" not in spec:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self._node}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            container["image"] = IMAGE
        self.cluster.apply(placed)

    def delete(self, kind: str, name: str, *, grace_s: int | None = None) -> None:
        """Delete an object and do not wait for its end."""
        grace = [] if grace_s is None else [f"--grace-period={grace_s}", *(["--force"] if grace_s == 0 else [])]
        self.cluster.kubectl("delete", kind, name, "-n", self.namespace, "--wait=false", *grace)

    def get(self, kind: str, name: str) -> Json | None:
        """Return an object, or None."""
        try:
            return self.cluster.get(kind, name, namespace="" if kind == "Node" else self.namespace)
        except LabError:
            return None

    def pods(self, labels: str = "") -> list[Json]:
        """Return the bed's pods."""
        items: list[Json] = self.cluster.get("pods", namespace=self.namespace, selector=labels)["items"]
        return items

    def events(self, name: str) -> list[str]:
        """Return an object's events."""
        found = self.get("Pod", name)
        return [] if found is None else self.cluster.events(self.namespace, found).splitlines()

    def exec(self, pod: str, *command: str, container: str = "") -> str:
        """Return what a command in the pod prints."""
        which = ["-c", container] if container else []
        return self.cluster.kubectl("exec", "-n", self.namespace, pod, *which, "--", *command)

    def devices_folder(self, node: str) -> Path:
        """Return kubelet's device-plugin folder."""
        return self.cluster.nodes[node].lab.path(f"{KUBELET}/device-plugins")

    def checkpoint(self, node: str) -> tuple[CheckpointEntry, ...]:
        """Read kubelet's checkpoint."""
        return self.cluster.nodes[node].checkpoint()

    def pod_resources(self, node: str) -> list[PodDevices]:
        """Ask PodResources."""
        return self.cluster.nodes[node].pod_resources()

    def restart_kubelet(self, node: str) -> None:
        """Restart k3s, which is kubelet's process."""
        self.cluster.nodes[node].lab.restart()

    def start_plugin(self, node: str) -> None:
        """Start edgegpu's plugin."""
        self.cluster.nodes[node].start()

    def kill_plugin(self, node: str) -> None:
        """Kill -9 edgegpu's plugin."""
        self.cluster.nodes[node].kill()

    def cards(self, node: str) -> list[str]:
        """Return the UUIDs of the node's cards."""
        return [card["uuid"] for card in self.cluster.nodes[node].status()["cards"]]

    def wait(self, look: Callable[[], T], *, what: str, timeout_s: float | None = None) -> T:
        """Look until there is something true, with a real cluster's patience."""
        return wait_until(look, what=what, timeout_s=max(PATIENCE_S, timeout_s or 0), every_s=0.3)

    def close(self) -> None:
        """Delete all that the test made."""
        self.cluster.clear(self.namespace)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")
