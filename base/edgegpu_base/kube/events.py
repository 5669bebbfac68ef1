"""Recorder of Events on pods: a repeated one is counted in the same Event, and a burst is cut off."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from edgegpu_base.kube.client import Json
from edgegpu_base.kube.errors import KubeError, NotFound
from edgegpu_base.kube.objects import KubeObjects

COMPONENT = "edgegpu"

_log = logging.getLogger(__name__)
_KNOWN = 512
_REPEAT_S = 60.0
_BURST = 30.0
_PER_S = 0.5
_MESSAGE_LENGTH = 1024
"""The longest message of an Event that the API server accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRef:
    """The pod that an Event is about."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Said:
    name: str
    count: int
    written: float


class EventRecorder:
    """The recorder of Events; a failed write is logged and not repeated, since nothing depends on it."""

    def __init__(
        self,
        objects: KubeObjects,
        *,
        host: str,
        clock: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Build the event recorder.

        Args:
            objects: the calls to the API server.
            host: the node that the Events come from.
            clock: monotonic seconds, for the limits.
            wall_s: seconds since 1970, for times and names.
        """
        self._objects = objects
        self._host = host
        self._clock = clock
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._said: OrderedDict[tuple[str, str, str], _Said] = OrderedDict()
        self._tokens = _BURST
        self._filled = clock()

    def record(self, pod: PodRef, *, reason: str, message: str) -> None:
        """Record a Warning on a pod; an equal (pod, reason, message) is written once a minute at most and counted."""
        message = message[:_MESSAGE_LENGTH]
        with self._lock:
            said = self._said.get((pod.uid, reason, message))
            if said is not None:
                said.count += 1
                if self._clock() - said.written < _REPEAT_S:
                    return
            if not self._token():
                return
            try:
                if said is None or not self._count(pod, said):
                    self._create(pod, reason=reason, message=message)
            except KubeError as error:
                _log.warning("event %s of pod %s/%s is lost: %s", reason, pod.namespace, pod.name, error)

    def _token(self) -> bool:
        now = self._clock()
        self._tokens = min(_BURST, self._tokens + (now - self._filled) * _PER_S)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _count(self, pod: PodRef, said: _Said) -> bool:
        """Write the new count of an existing Event; return False when that has expired."""
        try:
            self._objects.patch_event(pod.namespace, said.name, {"count": said.count, "lastTimestamp": self._stamp()})
        except NotFound:
            return False
        said.written = self._clock()
        return True

    def _create(self, pod: PodRef, *, reason: str, message: str) -> None:
        stamp = self._stamp()
        # The name is as in client-go: the object's name and the time in nanoseconds, hexadecimal.
        name = f"{pod.name}.{int(self._wall_s() * 1e9):x}"
        event: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": COMPONENT, "host": self._host},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        self._objects.create_event(pod.namespace, event)
        self._said[(pod.uid, reason, message)] = _Said(name, 1, self._clock())
        self._said.move_to_end((pod.uid, reason, message))
        while len(self._said) > _KNOWN:
            self._said.popitem(last=False)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
