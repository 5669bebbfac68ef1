"""The embedded kubelet's writes to the API: its Node; its pods' statuses, events, rejections and final deletion."""

import threading
import time
from collections.abc import Callable, Mapping

from edgegpu_sim.api import ApiError, Json, Registry
from edgegpu_sim.api.objects import now_text
from edgegpu_sim.kubelet.admission import Rejection
from edgegpu_sim.kubelet.devicemanager import NodeDevices
from edgegpu_sim.kubelet.podstatus import PodSnapshot, WaitingReason, pod_status

_HOST_IP = "127.0.0.1"
_SOURCE = "kubelet"


class ApiReports:
    """The reports of one node; while the API is down, callers must repeat statuses, and events are lost."""

    def __init__(self, registry: Registry, api_pod: Callable[[Json], Json | None]) -> None:
        """Build the API reports.

        Args:
            registry: the API.
            api_pod: returns a pod's object in the API: its own, or a static pod's mirror; None when there is none.
        """
        self._registry = registry
        self._api_pod = api_pod
        self._lock = threading.Lock()
        self._written: dict[str, Json] = {}
        self._started: dict[str, str] = {}

    def status(self, pod: Json, seen: PodSnapshot) -> bool:
        """Write a pod's status if it has changed; return False when the API is down."""
        before = pod["status"].get("startTime")
        with self._lock:
            started = self._started.setdefault(pod["metadata"]["uid"], before or now_text())
        return self._write(pod, pod_status(seen, host_ip=_HOST_IP, started=started))

    def reject(self, pod: Json, rejection: Rejection, *, ran: bool = False) -> None:
        """Write that a pod was not admitted.

        A pod whose containers ran (kubelet was restarted) is ended, and its status comes from its containers: if they
        obey TERM it is `Succeeded`, without reason and message; only the event names them (seen on 1.33).
        """
        self._event(pod, rejection.reason, rejection.message)
        failed = {"phase": "Failed", "reason": rejection.reason, "message": f"Pod was rejected: {rejection.message}"}
        ended = {"phase": "Succeeded", "reason": None, "message": None}
        containers = {"containerStatuses": None, "initContainerStatuses": None}
        self._write(pod, {**(ended if ran else failed), "startTime": now_text(), **containers})

    def event(self, pod: Json, trouble: WaitingReason) -> None:
        """Write a Warning event about a pod."""
        self._event(pod, trouble.reason, trouble.message)

    def gone(self, pod: Json) -> None:
        """Delete the object of a pod that is marked for deletion and has ended."""
        try:
            current = self._api_pod(pod)
            if current is None or not current["metadata"].get("deletionTimestamp"):
                return
            metadata = current["metadata"]
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            self._registry.delete("pods", metadata["namespace"], metadata["name"], options)
        except ApiError:
            return  # gone already, or the API is down: kubelet tries again
        finally:
            with self._lock:
                self._written.pop(pod["metadata"]["uid"], None)

    def _write(self, pod: Json, status: Json) -> bool:
        uid = pod["metadata"]["uid"]
        with self._lock:
            if self._written.get(uid) == status:
                return True
        try:
            current = self._api_pod(pod)
            if current is not None:
                metadata = current["metadata"]
                change = {"metadata": {"uid": metadata["uid"]}, "status": status}
                self._registry.patch("pods", metadata["namespace"], metadata["name"], change, sub="status")
        except ApiError as error:
            return error.reason != "ServiceUnavailable"
        with self._lock:
            self._written[uid] = status
        return True

    def _event(self, pod: Json, reason: str, message: str) -> None:
        try:
            current = self._api_pod(pod)
            if current is not None:
                self._registry.event(current, reason=reason, message=message, kind="Warning", source=_SOURCE)
        except ApiError:
            return


_HEARTBEAT_S = 5.0


class NodeStatus:
    """The Node's status, checked every `period_s` and written after a change and as a heartbeat."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        *,
        capacity: Callable[[], NodeDevices],
        period_s: float,
        most_pods: int,
        version: str,
    ) -> None:
        self._registry = registry
        self._name = name
        self._capacity = capacity
        self._period_s = period_s
        self._version = version
        self._base = {"cpu": "8", "memory": "32Gi", "pods": str(most_pods)}
        self._removed: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node status {name}")

    def register(self, labels: Mapping[str, str]) -> None:
        """Create the Node object if it does not exist."""
        every = {"kubernetes.io/hostname": self._name, "kubernetes.io/os": "linux", **labels}
        try:
            self._registry.create("nodes", {"metadata": {"name": self._name, "labels": every}, "spec": {}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def start(self) -> None:
        """Start publishing the Node's status."""
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing the Node's status."""
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
            "nodeInfo": {"kubeletVersion": self._version, "containerRuntimeVersion": "containerd://2.1.0-sim"},
        }
