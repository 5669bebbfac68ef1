"""The events of one watch, made from the store's history."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from edgegpu_sim.api.errors import ApiError
from edgegpu_sim.api.objects import Json, ObjectSelector
from edgegpu_sim.api.registry import KINDS, Registry
from edgegpu_sim.api.store import StoreEvent

_LOOK_S = 0.5
"""How often a quiet watch checks whether its client is still connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One client's watch: its objects and its length."""

    resource: str
    namespace: str
    selector: ObjectSelector
    version: str
    bookmarks: bool = False
    timeout_s: float = 1800.0
    delay_s: float = 0.0
    """How long each event is held back, as on a slow or late link."""
    bookmark_s: float = 5.0


def events(registry: Registry, watch: Watch, *, ended: Callable[[], bool]) -> Iterator[Json]:
    """Yield the events of a watch until its time is over or it is ended; the last may be an ERROR (410)."""
    ends = time.monotonic() + watch.timeout_s
    try:
        seen = yield from _first(registry, watch)
        marked = time.monotonic()
        while not ended() and time.monotonic() < ends:
            registry.store.wait(seen, min(_LOOK_S, max(0.0, ends - time.monotonic())), ended)
            for change in registry.store.since(seen):
                seen = change.version
                event = event_of(change, watch)
                if event is not None and _held_back(change, watch.delay_s, ended):
                    yield event
            if watch.bookmarks and time.monotonic() - marked > watch.bookmark_s:
                marked = time.monotonic()
                yield _bookmark(watch.resource, seen)
    except ApiError as error:
        yield {"type": "ERROR", "object": error.status()}


def _first(registry: Registry, watch: Watch) -> Generator[Json, None, int]:
    """Yield all present objects, with which a watch without a version begins; return the version reached."""
    if watch.version not in {"", "0"}:
        return int(watch.version)
    with registry.store.lock:
        items = registry.items(watch.resource, watch.namespace, watch.selector)
        version = registry.store.version
    for item in items:
        yield {"type": "ADDED", "object": item}
    return version


def event_of(change: StoreEvent, watch: Watch) -> Json | None:
    """Return a watch's event for a change: objects that begin to match are ADDED, those that cease are DELETED."""
    if change.resource != watch.resource:
        return None
    if watch.namespace not in {"", change.new["metadata"].get("namespace", "")}:
        return None
    before = change.old is not None and watch.selector.matches(change.old)
    after = not change.gone and watch.selector.matches(change.new)
    match before, after:
        case True, True:
            return {"type": "MODIFIED", "object": change.new}
        case False, True:
            return {"type": "ADDED", "object": change.new}
        case True, False:
            return {"type": "DELETED", "object": change.new}
        case _:
            return None


def _held_back(change: StoreEvent, delay_s: float, ended: Callable[[], bool]) -> bool:
    while (left := change.at_s + delay_s - time.monotonic()) > 0:
        if ended():
            return False
        time.sleep(min(left, 0.01))
    return True


def _bookmark(resource: str, version: int) -> Json:
    kind = KINDS[resource]
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"type": "BOOKMARK", "object": {"apiVersion": kind.version, "kind": kind.kind, "metadata": metadata}}
