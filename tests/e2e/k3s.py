"""A real k3s under test: nodes with plugins, the extender in its scheduler, and what one asks of the cluster."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import yaml
from e2e.apireads import KINDS, ApiReads
from e2e.machine import Machine
from e2e.manifests import CORE, MEMORY, Manifest
from e2e.plugin_node import PluginNode
from e2e.recovery_figures import record, recovery_figure
from kits.cert import Certs
from lab.labkit import LabError, wait_until

T = TypeVar("T")
EXTENDER = "127.0.0.1:8787"
SCHEDULER_FILE = "/etc/rancher/k3s/edgegpu-scheduler.yaml"
DROP_IN = "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"


def scheduler_configuration(certs: Certs) -> str:
    """Return the scheduler's configuration with the extender, all keys inline."""

    def data(pem: str) -> str:
        return base64.b64encode(pem.encode()).decode()

    extender = {
        "urlPrefix": f"https://{EXTENDER}",
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 1,
        "enableHTTPS": True,
        "tlsConfig": {
            "serverName": "edgegpu-extender",
            "caData": data(certs.ca),
            "certData": data(certs.client.cert),
            "keyData": data(certs.client.key),
        },
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [
            {"name": MEMORY, "ignoredByScheduler": False},
            {"name": CORE, "ignoredByScheduler": False},
        ],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"},
        "extenders": [extender],
    }
    return yaml.safe_dump(configuration)


class K3s:
    """The cluster as a test sees it."""

    def __init__(self, server: Machine) -> None:
        self.server = server
        self.nodes: dict[str, PluginNode] = {}
        self.reads: ApiReads | None = None
        """Where there are some, what tests look at often is read by them; else by kubectl."""

    def kubectl(self, *args: str, text: str = "", check: bool = True) -> str:
        """Run kubectl and return what it prints."""
        return self.server.kubectl(*args, input=text, check=check).stdout

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", text=json.dumps(whole))

    def get(self, kind: str, name: str = "", *, namespace: str = "", selector: str = "") -> dict[str, Any]:
        """Read one object or a list."""
        if self.reads is not None and kind in KINDS:
            query = {"labelSelector": selector} if selector else {}
            return self.reads.get(kind, name, namespace=namespace, query=query)
        args = ["get", kind, *([name] if name else []), "-o", "json"]
        args += ["-n", namespace] if namespace else ["-A"] if not name else []
        args += ["-l", selector] if selector else []
        answer: dict[str, Any] = json.loads(self.kubectl(*args))
        return answer

    def pods(self, namespace: str = "", app: str = "") -> list[dict[str, Any]]:
        """Return pods, of an app when one is named."""
        items: list[dict[str, Any]] = self.get("pods", namespace=namespace, selector=f"app={app}" if app else "")[
            "items"
        ]
        return items

    def the_pod(self, namespace: str, app: str) -> dict[str, Any]:
        """Return the one pod of an app that is not being deleted. Raises LabError until there is exactly one."""
        found = [pod for pod in self.pods(namespace, app) if "deletionTimestamp" not in pod["metadata"]]
        if len(found) != 1:
            raise LabError(f"{app} has {len(found)} pods")
        return found[0]

    def wait_phase(self, namespace: str, app: str, phase: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        """Wait for an app's one pod to be in a phase (Running: and ready), and return it."""

        def probe() -> dict[str, Any]:
            pod = self.the_pod(namespace, app)
            now, statuses = pod["status"].get("phase"), pod["status"].get("containerStatuses", [])
            # A node that has just come back may say Running before it has told of the containers.
            ready = phase != "Running" or (bool(statuses) and all(one["ready"] for one in statuses))
            if now != phase or not ready:
                raise LabError(f"{app} is {now} {pod['status'].get('reason', '')} {self.events(namespace, pod)[-400:]}")
            return pod

        return wait_until(probe, what=f"{namespace}/{app} is {phase}", timeout_s=timeout_s, every_s=0.3)

    def wait_event(self, namespace: str, app: str, words: str) -> str:
        """Wait until the events of an app's pod say something; returns them all."""

        def probe() -> str:
            said = self.events(namespace, self.the_pod(namespace, app))
            if words not in said:
                raise LabError(f"they say: {said[-600:]}")
            return said

        return wait_until(probe, what=f"events of {app} say {words!r}", every_s=0.3)

    def events(self, namespace: str, pod: Mapping[str, Any]) -> str:
        """Return the messages of a pod's events, a line each."""
        selector = f"involvedObject.uid={pod['metadata']['uid']}"
        if self.reads is not None:
            found = self.reads.get("events", "", namespace=namespace, query={"fieldSelector": selector})
            return _told(found["items"])
        events = json.loads(self.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json"))
        return _told(events["items"])

    def sees(self, namespace: str, pod: str, container: str = "main") -> list[str]:
        """Return the lines that `nvidia-smi -L` prints in a container."""
        return self.kubectl("exec", "-n", namespace, pod, "-c", container, "--", "nvidia-smi", "-L").splitlines()

    def allocatable(self, node: str) -> tuple[int, int]:
        """Return a node's allocatable memory units and core."""
        amounts = self.get("node", node)["status"].get("allocatable", {})
        return int(amounts.get(MEMORY, 0)), int(amounts.get(CORE, 0))

    def wait_allocatable(self, node: str, memory: int, core: int, *, timeout_s: float = 120.0) -> None:
        """Wait for a node to offer exactly so much, by its own word and by its report."""

        def probe() -> bool:
            return self.allocatable(node) == (memory, core)

        wait_until(probe, what=f"{node} offers {memory} and {core}", timeout_s=timeout_s, every_s=0.3)

    def report(
        self, name: str, values: list[float], *, limit: float, most: float | None = None, typical: float | None = None
    ) -> None:
        """Write figures where the bench's are; no test asserts a time, `make bench` judges them (recovery_figure)."""
        record(recovery_figure(name, values, limit=limit, most=most, typical=typical))

    def clear(self, namespace: str) -> None:
        """Delete a namespace's workloads and wait until the plugins hold nothing of them."""
        self.kubectl(
            "delete", "deployments,daemonsets,statefulsets,replicasets,pods", "--all", "-n", namespace, "--now"
        )

        def gone() -> bool:
            held = [row for node in self.nodes.values() if node.running for row in node.status().get("pods", [])]
            return not self.pods(namespace) and not [r for r in held if r["namespace"] in {namespace, ""}]

        wait_until(gone, what=f"{namespace} is empty", every_s=0.3)


def _told(events: list[dict[str, Any]]) -> str:
    return "\n".join(f"{event['reason']}: {event.get('message', '')}" for event in events)


def measured(action: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds an action took, and what it returned."""
    began = time.monotonic()
    result = action()
    return time.monotonic() - began, result
