"""The checker's eyes: reads the API, kubelet's checkpoint and PodResources, and asks nvidia-smi in containers."""

from __future__ import annotations

import queue
import random
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.labkit import LabError, Node

from churn import podresources
from churn.api import NAMESPACE, Api, AwayError
from churn.records import INIT, Booking, Failure, PodRecord, Reading, RecordError, quantity, read_checkpoint, read_pod
from churn.records import CORE, MEMORY
from churn.windows import Windows

_KUBELET = "var/lib/kubelet"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=type%3DWarning,reason%21%3DFailedScheduling"
_UUID = re.compile(r"\(UUID: (GPU-[0-9a-f-]+)\)")
_RETURN_S = 8.0
"""So long after the end of its fault a card may be still out: the driver is looked at each second, then kubelet hears."""
_ANSWER_S = 3.0
_EVERY_S = 3.0


class Watcher:
    """Makes readings of one node."""

    def __init__(
        self,
        api: Api,
        root: Path,
        node: str,
        *,
        windows: Windows,
        wanted: Callable[[], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        """Remember where to look; `root` is where this machine sees the node's files."""
        self._api, self._root, self._node = api, root, node
        self._windows, self._wanted, self._clock = windows, wanted, clock
        self.checkpoint = root / _KUBELET / "device-plugins/kubelet_internal_checkpoint"

    def reading(self) -> Reading:
        """Ask all sources once."""
        wanted = self._wanted()
        pods = self._pods()
        return Reading(
            pods=pods,
            bookings=self.bookings(),
            listed=self._listed(),
            failures=self._failures(),
            allocatable=self._allocatable() if pods is not None else None,
            out=self.out(),
            wanted=wanted,
            at_s=self._clock(),
        )

    def bookings(self) -> tuple[Booking, ...] | None:
        """Read kubelet's checkpoint."""
        try:
            return read_checkpoint(self.checkpoint.read_bytes())
        except (OSError, RecordError):
            return None

    def out(self) -> frozenset[str]:
        """Return the cards that are out of order, or may be."""
        at_s = self._clock()
        return frozenset(w.card for w in self._windows.all() if w.card and w.end_s + _RETURN_S > at_s)

    def _pods(self) -> tuple[PodRecord, ...] | None:
        try:
            return tuple(read_pod(value) for value in self._api.get(_PODS)["items"])
        except AwayError:
            return None

    def _failures(self) -> tuple[Failure, ...]:
        try:
            events = self._api.get(_EVENTS)["items"]
        except AwayError:
            return ()
        return tuple(
            Failure(one["involvedObject"].get("uid", ""), one.get("reason") or "", one.get("message") or "")
            for one in events
        )

    def _allocatable(self) -> tuple[int, int] | None:
        try:
            amounts = self._api.get(f"/api/v1/nodes/{self._node}")["status"].get("allocatable", {})
        except AwayError:
            return None
        return quantity(amounts.get(MEMORY)), quantity(amounts.get(CORE))

    def _listed(self) -> tuple[Booking, ...] | None:
        try:
            return podresources.ask(self._root / _KUBELET / "pod-resources/kubelet.sock", _ANSWER_S)
        except RecordError:
            return None


@dataclass(frozen=True, slots=True)
class Seen:
    """What nvidia-smi listed in a container, and what was booked for it before and afterwards."""

    pod: PodRecord
    container: str
    seen: frozenset[str]
    booked: frozenset[str]
    at_s: float


class Sampler(threading.Thread):
    """Runs `nvidia-smi -L` in a container now and then; results come out of `seen`."""

    def __init__(self, server: Node, watcher: Watcher, *, rng: random.Random, clock: Callable[[], float]) -> None:
        """Begin with nothing to choose from."""
        super().__init__(name="sampler", daemon=True)
        self._server, self._watcher, self._rng, self._clock = server, watcher, rng, clock
        self._end = threading.Event()
        self._pods: tuple[PodRecord, ...] = ()
        self.seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self.unanswered = 0

    def choose_from(self, pods: tuple[PodRecord, ...]) -> None:
        """Take the pods of a new reading."""
        self._pods = tuple(pod for pod in pods if pod.running and not pod.deleting and pod.containers)

    def stop(self) -> None:
        """End it."""
        self._end.set()
        self.join()

    def run(self) -> None:
        while not self._end.wait(_EVERY_S):
            if not self._pods:
                continue
            pod = self._rng.choice(self._pods)
            names = [one.name for one in pod.containers if one.kind != INIT]
            if names:
                self._look(pod, self._rng.choice(names))

    def _look(self, pod: PodRecord, container: str) -> None:
        """Ask, and where the answer is not what is booked, ask once more."""
        for last in (False, True):
            before, answer, after = (
                self._booked(pod, container),
                self._ask(pod, container),
                self._booked(pod, container),
            )
            if answer is None or before is None or before != after or before & self._watcher.out():
                self.unanswered += 1
                return
            if answer == before or last:
                self.seen.put(Seen(pod, container, answer, before, self._clock()))
                return

    def _booked(self, pod: PodRecord, container: str) -> frozenset[str] | None:
        some = self._watcher.bookings() or ()
        return next((one.cards for one in some if one.pod == pod.uid and one.container == container and one.ids), None)

    def _ask(self, pod: PodRecord, container: str) -> frozenset[str] | None:
        """Return the cards that a container lists; None where nobody could be asked."""
        args = ("exec", "-n", pod.namespace, pod.name, "-c", container, "--", "nvidia-smi", "-L")
        try:
            done = self._server.kubectl(*args, check=False, timeout_s=20.0)
        except LabError:
            return None
        cards = frozenset(_UUID.findall(done.stdout))
        if done.returncode and not cards and "nvidia-smi" not in done.stderr:
            return None
        return cards
