"""Live pages: one watcher of the database in each process wakes every open page whose boxes have changed."""

import asyncio
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from edgegpu_cloud.console.context import VisitorFleet
from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.records import PARTITIONS
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.store.summaries.tables import ChangeNumbers
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

_LOG = logging.getLogger(__name__)

POLL_S = 0.5
MOST_NAMED = 200
"""Boxes that one event names; where more have changed, it says `all`."""
_CHECK_SESSION_S = 15.0

ENROL = "enrol"
"""What an event names beside boxes, when a box has asked to enrol, or a token has changed: `data-live="enrol"`."""
ALERTS = "alerts"
"""The same when an alert begins, changes, ends or is silenced: `data-live="alerts"`."""
PROGRESS = "progress"
"""The same when a rollout begins, moves on or ends, or a change of many boxes ends: `data-live="progress"`."""
NO_BOXES = frozenset({ENROL, ALERTS, PROGRESS})


class Position(NamedTuple):
    """How far the changes of the store have come: the numbers of the last changes of boxes, and marks of the others."""

    numbers: ChangeNumbers
    enrolments: str
    alerts: str
    progress: str

    def __str__(self) -> str:
        """Return the text that a page keeps: the numbers are hexadecimal, 0 is empty."""
        numbers = ".".join(f"{number:x}" if number else "" for number in self.numbers)
        return f"{numbers}-{self.enrolments}-{self.alerts}-{self.progress}"

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the position that a page has kept; None where the text is none."""
        found = _POSITION.fullmatch(text)
        if found is None:
            return None
        numbers, *marks = found.groups()
        return cls(tuple(int(number or "0", 16) for number in numbers.split(".")), *marks)

    def is_reached_by(self, now: Self) -> bool:
        """Whether the store can have come from here to there: a backup that was restored has lower numbers."""
        return all(number <= newest for number, newest in zip(self.numbers, now.numbers, strict=True))


_NUMBER = "(?:[1-9a-f][0-9a-f]{0,14})?"
_NUMBERS = rf"{_NUMBER}(?:\.{_NUMBER}){{{PARTITIONS - 1}}}"
_MARK = "([0-9a-f]{12})"
_POSITION = re.compile(f"({_NUMBERS})-{_MARK}-{_MARK}-{_MARK}")

Changed = Callable[[Position | None], tuple[Position, list[DeviceId]]]
"""Takes the position after which changes are wanted (None: no changes); returns the newest, and what has changed."""


class StoreChanges:
    """The boxes that have changed, and `ENROL`, `ALERTS` and `PROGRESS` where these have."""

    def __init__(self, store: ControllerStore) -> None:
        self._store = store

    def __call__(self, since: Position | None) -> tuple[Position, list[DeviceId]]:
        """Return the newest position, and what has changed after `since`; None: the position alone."""
        changes = self._store.changed_boxes(None if since is None else since.numbers)
        with self._store.read() as tx:
            marks = (tx.enrolments.mark(), tx.alerts.mark(), str(tx.notes.progress()))
        now = Position(changes.numbers, *map(_digest, marks))
        if since is None:
            return now, []
        boxes = list(changes.boxes)
        if now.enrolments != since.enrolments:
            boxes.append(DeviceId(ENROL))
        if now.alerts != since.alerts:
            boxes.append(DeviceId(ALERTS))
        if now.progress != since.progress:
            boxes.append(DeviceId(PROGRESS))
        return now, boxes


def _digest(mark: str) -> str:
    return hashlib.sha256(mark.encode()).hexdigest()[:12]


class ChangeWatcher:
    """A thread that asks the store what has changed; subscribers are woken in the event loop."""

    def __init__(self, changed: Changed, *, poll_s: float = POLL_S) -> None:
        """Take the question to the store; `poll_s` seconds lie between two questions.

        What changes from now on is told, also before `run`: a page may be open by then.

        Raises:
            CloudError: the store does not answer.
        """
        self._changed, self._poll_s = changed, poll_s
        self._position, _ = changed(None)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._subscribers: dict[asyncio.Queue[list[DeviceId]], asyncio.AbstractEventLoop] = {}

    @property
    def position(self) -> Position:
        """A position that what is read from the store from now on is not behind."""
        return self._position

    def missed(self, since: str) -> list[DeviceId] | None:
        """Return what has changed after the position that a page has kept; None: it is not known, so all may have.

        Raises:
            CloudError: the store does not answer.
        """
        known, newest = Position.of(since), self._changed(None)[0]
        if known is None or not known.is_reached_by(newest):
            return None
        reached, boxes = self._changed(known)
        return boxes if newest.is_reached_by(reached) else None  # else there are more, and nobody asks for them

    def run(self) -> None:
        """Watch until `stop`."""
        failing = False
        while not self._stopped.wait(self._poll_s):
            try:
                position, boxes = self._changed(self._position)
            except CloudError as error:
                if not failing:
                    _LOG.warning("cannot watch the store: %s; tried again", error)
                failing = True
                continue
            failing = False
            if boxes:
                self._tell(boxes)
            self._position = position

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

ALL = "all"
"""What an event names where too many boxes have changed, or it is not known which."""


def named_for(fleet: Fleet, boxes: Collection[DeviceId]) -> list[str]:
    """Return what an event names to a person: the boxes that exist for them, and what is no box; or `all`."""
    if len(boxes) > MOST_NAMED:
        return [ALL]
    if fleet.access.is_whole:
        return sorted(boxes)
    return sorted({*fleet.names_of(boxes), *NO_BOXES.intersection(boxes)})


def _missed(watcher: ChangeWatcher, fleet: Fleet, since: str) -> list[str]:
    """Return what an event names to a person whose page was drawn at a position."""
    try:
        boxes = watcher.missed(since)
        return [ALL] if boxes is None else named_for(fleet, boxes)
    except CloudError as error:
        _LOG.warning("cannot tell what has changed since a page was drawn: %s; all of it is drawn anew", error)
        return [ALL]


async def gathered(queue: asyncio.Queue[list[DeviceId]], most_s: float) -> set[DeviceId]:
    """Wait for changes, `most_s` seconds at most; return all that have come by then."""
    changed: set[DeviceId] = set()
    with suppress(TimeoutError):
        changed.update(await asyncio.wait_for(queue.get(), most_s))
    while not queue.empty():
        changed.update(queue.get_nowait())
    return changed


@router.get("/live")
async def live(request: Request, fleet: VisitorFleet, since: str = "") -> EventSourceResponse:
    """Stream the ids of boxes that change; it ends when the session does, also while there are changes all the time.

    `since` is the position that the page was drawn at: what has changed between the page and its stream comes first.
    """
    parts: ConsoleParts = request.state.parts
    token = request.cookies.get(SESSION_COOKIE, "")

    async def events() -> AsyncIterator[ServerSentEvent]:
        checked_s = time.monotonic()
        with parts.watcher.subscription() as queue:
            yield ServerSentEvent(event="hello", data="")
            missed = await asyncio.to_thread(_missed, parts.watcher, fleet, since)
            if missed:
                yield ServerSentEvent(event="boxes", data=json.dumps(missed))
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
