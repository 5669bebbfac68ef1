"""The worker of one admitted pod, in its own thread: init containers, apps, restarts, the end."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from edgegpu_sim.api.objects import Json, limits
from edgegpu_sim.containers import CreateError
from edgegpu_sim.kubelet.devicemanager import DeviceManager
from edgegpu_sim.kubelet.endpoint import DeviceError
from edgegpu_sim.kubelet.podstatus import PodSnapshot, WaitingReason, initialised, is_sidecar, phase
from edgegpu_sim.kubelet.runtime import KILLED, Runtime

_LOOK_S = 0.5
"""How often an idle pod is checked, so that a status whose write failed is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTimings:
    """The durations of a pod's steps; a real kubelet takes seconds where these are hundredths."""

    termination_s: float = 0.02
    """The time from the request to end a pod to its containers' end."""
    release_s: float = 0.02
    """The time from the containers' end until kubelet releases the pod."""
    retry_s: float = 0.2
    """The time between attempts to start a container that was refused."""
    backoff_s: float = 0.2
    """The first wait in a crash loop; it doubles up to `backoff_most_s`."""
    backoff_most_s: float = 5.0


class PodReports(Protocol):
    """The reports of a worker about its pod."""

    def status(self, pod: Json, seen: PodSnapshot) -> bool:
        """Publish a pod's status; return False when that must be tried again."""

    def event(self, pod: Json, trouble: WaitingReason) -> None:
        """Write a Warning event about a pod; `trouble.reason` is the event's reason."""

    def gone(self, pod: Json) -> None:
        """Report that kubelet has released a pod."""


class PodWorker:
    """The worker of one pod; `detach` leaves its containers running, as a kubelet does when it stops."""

    def __init__(
        self, pod: Json, *, runtime: Runtime, manager: DeviceManager, reports: PodReports, pace: PodTimings
    ) -> None:
        self.pod = pod
        self._runtime, self._manager, self._reports, self._pace = runtime, manager, reports, pace
        self._wake = threading.Condition()
        self._detached = False
        self._ending = False
        self._troubles: dict[str, WaitingReason] = {}
        self._not_before_s: dict[str, float] = {}
        self.terminated = False
        """Whether the containers have ended for good, so that other pods may get their devices."""
        self._thread = threading.Thread(target=self._run, name=f"pod {pod['metadata']['name']}")

    @property
    def uid(self) -> str:
        """The pod's UID in kubelet's records."""
        return str(self.pod["metadata"]["uid"])

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the pod, whatever its API object says from now on."""
        with self._wake:
            self._ending = True
            self._wake.notify()

    @property
    def ending(self) -> bool:
        """Whether the pod is being ended."""
        return self._ending

    def detach(self) -> None:
        """Stop the worker and leave the pod's containers as they are."""
        with self._wake:
            self._detached = True
            self._wake.notify()

    def join(self) -> None:
        """Wait until the worker has stopped."""
        self._thread.join()

    def seen(self) -> PodSnapshot:
        """Return a snapshot of the pod."""
        return PodSnapshot(
            spec=self.pod["spec"],
            containers=self._runtime.containers(self.uid),
            troubles=dict(self._troubles),
            now_s=time.time(),
            ended=self._ending,
        )

    def _run(self) -> None:
        while not self._detached and not self._ending:
            wait_s = self._step()
            seen = self.seen()
            if phase(seen) in {"Succeeded", "Failed"}:
                break
            self._reports.status(self.pod, seen)
            self._pause(wait_s, until=lambda: self._ending)
        if not self._detached:
            self._finish()

    def _finish(self) -> None:
        if any(self.seen().runs(name) for name in self._runtime.containers(self.uid)):
            if self._ending:
                self._reports.status(self.pod, self.seen())
                self._pause(self._pace.termination_s)
            if self._detached:
                return
            self._runtime.kill(self.uid, code=KILLED)
        self._troubles.clear()
        while not self._reports.status(self.pod, self.seen()) and not self._detached:
            self._pause(self._pace.retry_s)
        self._pause(self._pace.release_s)
        if self._detached:
            return
        self.terminated = True
        if self._ending:
            self._runtime.forget(self.uid)
        self._reports.gone(self.pod)

    def _pause(self, wait_s: float, *, until: Callable[[], bool] = lambda: False) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._detached or until(), max(0.0, wait_s))

    def _step(self) -> float:
        """Start the containers that are due; return how long until the next step."""
        spec = self.pod["spec"]
        for container in spec.get("initContainers") or ():
            self._tend(container, again="Always" if is_sidecar(container) else _init_policy(spec))
            if not initialised(
                PodSnapshot(spec={"initContainers": [container]}, containers=self.seen().containers, now_s=time.time())
            ):
                break
        if initialised(self.seen()):
            for container in spec["containers"]:
                self._tend(container, again=spec.get("restartPolicy", "Always"))
        now_s = time.time()
        ends = [c.ends_s for c in self._runtime.containers(self.uid).values() if c.is_running(now_s)]
        return max(0.0, min([*ends, *self._not_before_s.values(), now_s + _LOOK_S], default=math.inf) - now_s)

    def _tend(self, container: Mapping[str, Any], *, again: str) -> None:
        """Start a container when it is due; `again` is Always, OnFailure or Never."""
        name, now_s = container["name"], time.time()
        have = self._runtime.containers(self.uid).get(name)
        if have is not None and have.is_running(now_s):
            return
        if have is not None and (again == "Never" or (again == "OnFailure" and have.ends_with == 0)):
            return
        due_s = self._not_before_s.get(name, now_s if have is None else have.ends_s + self._backoff_s(have.attempt))
        if now_s < due_s:
            self._wait_for(
                name, due_s, WaitingReason("CrashLoopBackOff", f"back-off restarting failed container {name}")
            )
            return
        self._start(container)

    def _backoff_s(self, attempt: int) -> float:
        """Return the wait before a restart; the first restart is immediate."""
        return min(self._pace.backoff_s * 2.0 ** (attempt - 1), self._pace.backoff_most_s) if attempt else 0.0

    def _wait_for(self, name: str, due_s: float, trouble: WaitingReason) -> None:
        self._not_before_s[name] = due_s
        self._troubles.setdefault(name, trouble)

    def _start(self, container: Mapping[str, Any]) -> None:
        name = container["name"]
        self._not_before_s.pop(name, None)
        try:
            given = self._manager.options(self.uid, name, limits(container))
            self._runtime.start(self.pod, container, given)
        except DeviceError as error:
            self._refused(name, WaitingReason("CreateContainerConfigError", str(error)))
        except CreateError as error:
            self._refused(name, WaitingReason("CreateContainerError", str(error)))
        else:
            self._troubles.pop(name, None)

    def _refused(self, name: str, trouble: WaitingReason) -> None:
        if self._detached:
            return  # kubelet is being killed and reports nothing
        self._troubles[name] = trouble
        self._not_before_s[name] = time.time() + self._pace.retry_s
        self._reports.event(self.pod, WaitingReason("Failed", f"Error: {trouble.message}"))


def _init_policy(spec: Mapping[str, Any]) -> str:
    """Return the restart policy of init containers: one that has succeeded never runs again."""
    return "Never" if spec.get("restartPolicy") == "Never" else "OnFailure"
