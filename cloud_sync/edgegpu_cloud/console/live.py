"""Live pages: one watcher of the database in each process wakes every open page whose boxes have changed."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from edgegpu_cloud.console.context import VisitorFleet
from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

_LOG = logging.getLogger(__name__)

POLL_S = 0.5
MOST_NAMED = 200
"""Boxes that one event names; where more have changed, it says `all`."""
_CHECK_SESSION_S = 15.0

Changed = Callable[[int], tuple[int, list[DeviceId]]]
"""Takes the number after which changes are wanted; returns the newest number, and the boxes that have changed."""


ENROL = "enrol"
"""What an event names beside boxes, when a box has asked to enrol, or a token has changed: `data-live="enrol"`."""
ALERTS = "alerts"
"""The same when an alert begins, ends or is silenced: `data-live="alerts"`."""
NO_BOXES = frozenset({ENROL, ALERTS})


class StoreChanges:
    """The boxes that have changed, and `ENROL` and `ALERTS` where these have; for one watcher, which asks again."""

    def __init__(self, store: ControllerStore) -> None:
        self._store, self._last = store, dict[str, str]()

    def __call__(self, number: int) -> tuple[int, list[DeviceId]]:
        """Return the newest number of changes, and what has changed after `number`; -1: the number alone."""
        newest, boxes = self._store.changed_boxes(number)
        with self._store.read() as tx:
            now = {ENROL: tx.enrolments.mark(), ALERTS: tx.alerts.mark()}
        others = [DeviceId(name) for name, mark in now.items() if self._last.get(name, mark) != mark]
        self._last = now
        return newest, [*boxes, *others]


class ChangeWatcher:
    """A thread that asks the store what has changed; subscribers are woken in the event loop."""

    def __init__(self, changed: Changed, *, poll_s: float = POLL_S) -> None:
        """Take the question to the store; `poll_s` seconds lie between two questions.

        What changes from now on is told, also before `run`: a page may be open by then.

        Raises:
            CloudError: the store does not answer.
        """
        self._changed, self._poll_s = changed, poll_s
        self._number, _ = changed(-1)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._subscribers: dict[asyncio.Queue[list[DeviceId]], asyncio.AbstractEventLoop] = {}

    def run(self) -> None:
        """Watch until `stop`."""
        failing = False
        while not self._stopped.wait(self._poll_s):
            try:
                newest, boxes = self._changed(self._number)
            except CloudError as error:
                if not failing:
                    _LOG.warning("cannot watch the store: %s; tried again", error)
                failing = True
                continue
            failing = False
            if boxes:
                self._tell(boxes)
            self._number = newest

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def _tell(self, boxes: list[DeviceId]) -> None:
        with self._lock:
            for queue, loop in self._subscribers.items():
                loop.call_soon_threadsafe(queue.put_nowait, boxes)

    @contextmanager
    def subscription(self) -> Iterator[asyncio.Queue[list[DeviceId]]]:
        """Yield a queue that gets the boxes of each change, in the running event loop."""
        queue: asyncio.Queue[list[DeviceId]] = asyncio.Queue()
        with self._lock:
            self._subscribers[queue] = asyncio.get_running_loop()
        try:
            yield queue
        finally:
            with self._lock:
                del self._subscribers[queue]


router = APIRouter()


def named_for(fleet: Fleet, boxes: Collection[DeviceId]) -> list[str]:
    """Return what an event names to a person: the boxes that exist for them, and what is no box; or `all`."""
    if len(boxes) > MOST_NAMED:
        return ["all"]
    if fleet.access.is_whole:
        return sorted(boxes)
    return sorted({*fleet.names_of(boxes), *NO_BOXES.intersection(boxes)})


async def gathered(queue: asyncio.Queue[list[DeviceId]], most_s: float) -> set[DeviceId]:
    """Wait for changes, `most_s` seconds at most; return all that have come by then."""
    changed: set[DeviceId] = set()
    with suppress(TimeoutError):
        changed.update(await asyncio.wait_for(queue.get(), most_s))
    while not queue.empty():
        changed.update(queue.get_nowait())
    return changed


@router.get("/live")
async def live(request: Request, fleet: VisitorFleet) -> EventSourceResponse:
    """Stream the ids of boxes that change; it ends when the session does, also while there are changes all the time."""
    parts: ConsoleParts = request.state.parts
    token = request.cookies.get(SESSION_COOKIE, "")

    async def events() -> AsyncIterator[ServerSentEvent]:
        checked_s = time.monotonic()
        with parts.watcher.subscription() as queue:
            yield ServerSentEvent(event="hello", data="")
            while True:
                boxes = await gathered(queue, _CHECK_SESSION_S)
                if time.monotonic() - checked_s >= _CHECK_SESSION_S:
                    if await asyncio.to_thread(parts.visitors.visitor, token) is None:
                        yield ServerSentEvent(event="signed-out", data="")
                        return
                    checked_s = time.monotonic()
                named = await asyncio.to_thread(named_for, fleet, boxes) if boxes else []
                if named:
                    yield ServerSentEvent(event="boxes", data=json.dumps(named))

    return EventSourceResponse(events(), ping=20, headers={"X-Accel-Buffering": "no"})
