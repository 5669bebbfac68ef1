"""Writes what kubelet has to say of its pods to the API: statuses, events, rejections, the last deletion."""

import threading
from collections.abc import Callable

from edgegpu_sim.api import ApiError, Json, Registry
from edgegpu_sim.api.objects import now_text
from edgegpu_sim.kubelet.admission import Rejection
from edgegpu_sim.kubelet.podstatus import PodSnapshot, WaitingReason, pod_status

_HOST_IP = "127.0.0.1"
_SOURCE = "kubelet"


class ApiReports:
    """One node's reports; while the API is down statuses wait with their callers, and events are lost."""

    def __init__(self, registry: Registry, api_pod: Callable[[Json], Json | None]) -> None:
        """Prepare.

        Args:
            registry: the API.
            api_pod: finds the API's object of a pod: its own, or a static pod's mirror; None when there is none.
        """
        self._registry = registry
        self._api_pod = api_pod
        self._lock = threading.Lock()
        self._written: dict[str, Json] = {}
        self._started: dict[str, str] = {}

    def status(self, pod: Json, seen: PodSnapshot) -> bool:
        """Write a pod's status when it has changed; False when the API is down."""
        before = pod["status"].get("startTime")
        with self._lock:
            started = self._started.setdefault(pod["metadata"]["uid"], before or now_text())
        return self._write(pod, pod_status(seen, host_ip=_HOST_IP, started=started))

    def reject(self, pod: Json, rejection: Rejection, *, ran: bool = False) -> None:
        """Write that a pod was not admitted.

        One whose containers ran (kubelet was restarted) is ended, and its status then made from its containers: those
        that obey TERM leave `Succeeded`, and neither reason nor message; only the event tells (seen on 1.33).
        """
        self._event(pod, rejection.reason, rejection.message)
        failed = {"phase": "Failed", "reason": rejection.reason, "message": f"Pod was rejected: {rejection.message}"}
        ended = {"phase": "Succeeded", "reason": None, "message": None}
        containers = {"containerStatuses": None, "initContainerStatuses": None}
        self._write(pod, {**(ended if ran else failed), "startTime": now_text(), **containers})

    def event(self, pod: Json, trouble: WaitingReason) -> None:
        """Write a Warning."""
        self._event(pod, trouble.reason, trouble.message)

    def gone(self, pod: Json) -> None:
        """Delete the object of a pod that was to be deleted and has ended."""
        try:
            current = self._api_pod(pod)
            if current is None or not current["metadata"].get("deletionTimestamp"):
                return
            metadata = current["metadata"]
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            self._registry.delete("pods", metadata["namespace"], metadata["name"], options)
        except ApiError:
            return  # gone already, or the API is down: kubelet looks again
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
