"""Publishes what a node offers in its Node object, a little later than it is so, as kubelet does."""

import threading
import time
from collections.abc import Callable, Mapping

from edgegpu_sim.api import ApiError, Json, Registry
from edgegpu_sim.api.objects import now_text
from edgegpu_sim.kubelet.devicemanager import NodeDevices

_HEARTBEAT_S = 5.0


class NodeStatus:
    """Looks every `period_s` and writes on a change, and now and then for the heartbeat."""

    def __init__(
        self, registry: Registry, name: str, *, capacity: Callable[[], NodeDevices], period_s: float, most_pods: int
    ) -> None:
        self._registry = registry
        self._name = name
        self._capacity = capacity
        self._period_s = period_s
        self._base = {"cpu": "8", "memory": "32Gi", "pods": str(most_pods)}
        self._removed: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node status {name}")

    def register(self, labels: Mapping[str, str]) -> None:
        """Create the Node object when it is not there."""
        every = {"kubernetes.io/hostname": self._name, "kubernetes.io/os": "linux", **labels}
        try:
            self._registry.create("nodes", {"metadata": {"name": self._name, "labels": every}, "spec": {}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def start(self) -> None:
        """Publish from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        written: Json = {}
        beat_s = 0.0
        while not self._stop.wait(self._period_s):
            status = self._status()
            if status == written and time.monotonic() - beat_s < _HEARTBEAT_S:
                continue
            now = now_text()
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
            try:
                self._registry.patch(
                    "nodes", "", self._name, {"status": {**status, "conditions": [ready]}}, sub="status"
                )
            except ApiError:
                continue
            written, beat_s = status, time.monotonic()

    def _status(self) -> Json:
        offered = self._capacity()
        self._removed = (self._removed | offered.removed) - set(offered.capacity)
        zero = dict.fromkeys(self._removed, "0")
        return {
            "capacity": {**self._base, **zero, **{name: str(count) for name, count in offered.capacity.items()}},
            "allocatable": {**self._base, **zero, **{name: str(count) for name, count in offered.allocatable.items()}},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self._name}],
            "nodeInfo": {"kubeletVersion": "v1.33.0+sim", "containerRuntimeVersion": "containerd://2.1.0-sim"},
        }
