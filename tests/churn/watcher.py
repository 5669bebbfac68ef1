"""The checker's eyes: reads the API, kubelet's checkpoint and PodResources, and asks nvidia-smi in containers."""

from __future__ import annotations

import queue
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from churn import podresources
from churn.api import NAMESPACE, Api, AwayError
from churn.records import (
    CORE,
    INIT,
    MEMORY,
    Booking,
    Failure,
    PodRecord,
    Reading,
    RecordError,
    quantity,
    read_checkpoint,
    read_pod,
)
from churn.windows import Windows
from churn.worker import Worker
from lab.labkit import LabError, Node

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=type%3DWarning,reason%21%3DFailedScheduling"
_UUID = re.compile(r"\(UUID: (GPU-[0-9a-f-]+)\)")
RETURN_S = 8.0
"""So long after the end of its fault a card may be still out: the plugin looks each second, then kubelet hears."""
_ANSWER_S = 1.0
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
        self._api, self._node, self._kubelet = api, node, root / "var/lib/kubelet"
        self._windows, self._wanted, self._clock = windows, wanted, clock

    def reading(self) -> Reading:
        """Ask all sources once; if the API server does not answer, it is not asked again."""
        wanted = self._wanted()
        answers = self._of_api()
        return Reading(
            pods=answers.pods if answers else None,
            bookings=self.bookings(),
            listed=self._listed(),
            failures=answers.failures if answers else (),
            allocatable=answers.allocatable if answers else None,
            out=self.out(),
            wanted=wanted,
            at_s=self._clock(),
        )

    def bookings(self) -> tuple[Booking, ...] | None:
        """Read kubelet's checkpoint."""
        try:
            return read_checkpoint((self._kubelet / "device-plugins/kubelet_internal_checkpoint").read_bytes())
        except (OSError, RecordError):
            return None

    def out(self) -> frozenset[str]:
        """Return the cards that are out of order, or may be."""
        return frozenset(self._windows.out(RETURN_S))

    def _of_api(self) -> _Answers | None:
        try:
            pods = tuple(read_pod(value) for value in self._api.get(_PODS)["items"])
            events = self._api.get(_EVENTS)["items"]
            amounts = self._api.get(f"/api/v1/nodes/{self._node}")["status"].get("allocatable", {})
        except AwayError:
            return None
        failures = tuple(
            Failure(event["involvedObject"].get("uid", ""), event.get("reason") or "", event.get("message") or "")
            for event in events
        )
        return _Answers(pods, failures, (quantity(amounts.get(MEMORY)), quantity(amounts.get(CORE))))

    def _listed(self) -> tuple[Booking, ...] | None:
        try:
            return podresources.ask(self._kubelet / "pod-resources/kubelet.sock", _ANSWER_S)
        except RecordError:
            return None


@dataclass(frozen=True, slots=True)
class _Answers:
    pods: tuple[PodRecord, ...]
    failures: tuple[Failure, ...]
    allocatable: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What nvidia-smi listed in a container, and what was booked for it before and afterwards."""

    pod: PodRecord
    container: str
    seen: frozenset[str]
    booked: frozenset[str]
    at_s: float


class Sampler(Worker):
    """Runs `nvidia-smi -L` in a container now and then; results come out of `seen`."""

    def __init__(self, server: Node, watcher: Watcher, *, rng: random.Random, clock: Callable[[], float]) -> None:
        """Begin with nothing to choose from."""
        super().__init__("sampler")
        self._server, self._watcher, self._rng, self._clock = server, watcher, rng, clock
        self._pods: tuple[PodRecord, ...] = ()
        self.seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self.unanswered = 0

    def choose_from(self, pods: tuple[PodRecord, ...]) -> None:
        """Take the pods of a new reading."""
        self._pods = tuple(pod for pod in pods if pod.running and not pod.deleting and pod.containers)

    def _run(self) -> None:
        while not self._end.wait(_EVERY_S):
            if not self._pods:
                continue
            pod = self._rng.choice(self._pods)
            names = [request.name for request in pod.containers if request.kind != INIT]
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
        for booking in self._watcher.bookings() or ():
            if booking.pod == pod.uid and booking.container == container and booking.ids:
                return booking.cards
        return None

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
