"""The store of objects with versions, and the history that watches read."""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edgegpu_sim.api.errors import expired
from edgegpu_sim.api.objects import Json

Key = tuple[str, str, str]
"""Resource (`pods`), namespace (empty for cluster objects), name."""


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One write: `old` is None for a creation, `gone` marks a removal; `at_s` is monotonic."""

    version: int
    resource: str
    old: Json | None
    new: Json
    gone: bool
    at_s: float


class ObjectStore:
    """The store; its objects are never changed in place, so readers may keep them."""

    def __init__(self, *, history: int = 20_000) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._objects: dict[Key, Json] = {}
        self._history: deque[StoreEvent] = deque(maxlen=history)
        self._forgotten = 0
        self._version = 1

    @property
    def version(self) -> int:
        """The version of the last write."""
        return self._version

    def get(self, key: Key) -> Json | None:
        """Return an object, or None."""
        return self._objects.get(key)

    def items(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource, of one namespace or of all, by name."""
        with self.lock:
            keys = sorted(key for key in self._objects if key[0] == resource and namespace in {"", key[1]})
            return [self._objects[key] for key in keys]

    def put(self, key: Key, item: Json) -> Json:
        """Store an object under a new version and return it as stored."""
        with self.lock:
            self._version += 1
            old = self._objects.get(key)
            metadata = {**item["metadata"], "resourceVersion": str(self._version)}
            if old is None:
                metadata.setdefault("uid", str(uuid.uuid4()))
            stored = {**item, "metadata": metadata}
            self._objects[key] = stored
            self._note(StoreEvent(self._version, key[0], old, stored, gone=False, at_s=time.monotonic()))
            return stored

    def remove(self, key: Key) -> Json:
        """Remove an existing object and return its last form."""
        with self.lock:
            self._version += 1
            old = self._objects.pop(key)
            last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._version)}}
            self._note(StoreEvent(self._version, key[0], old, last, gone=True, at_s=time.monotonic()))
            return last

    def since(self, version: int) -> list[StoreEvent]:
        """Return all changes after a version, oldest first.

        Raises:
            ApiError: the history does not go back that far (410).
        """
        with self.lock:
            if version < self._forgotten:
                raise expired(version, self._forgotten)
            found: list[StoreEvent] = []
            for change in reversed(self._history):
                if change.version <= version:
                    break
                found.append(change)
            return found[::-1]

    def forget(self) -> None:
        """Forget the history, as etcd's compaction does: watches from earlier versions are answered 410."""
        with self.lock:
            self._history.clear()
            self._forgotten = self._version

    def wait(self, version: int, timeout_s: float, stopped: Callable[[], bool] = lambda: False) -> int:
        """Wait for a change after `version`, for `stopped` or for the time-out; return the present version."""
        with self.lock:
            self._changed.wait_for(lambda: self._version > version or stopped(), timeout_s)
            return self._version

    def wake(self) -> None:
        """Make all waiting callers check again."""
        with self.lock:
            self._changed.notify_all()

    def _note(self, change: StoreEvent) -> None:
        if self._history and len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        self._changed.notify_all()
