"""Locks by name that are given in the order in which they were asked for, and not waited for without end."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FifoLocks:
    """One lock per name; a name that nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[str, deque[object]] = {}

    @contextmanager
    def hold(self, name: str, timeout_s: float) -> Iterator[bool]:
        """Hold the lock of `name` for the block; the value is False when its turn did not come in time."""
        ticket = object()
        with self._changed:
            queue = self._queues.setdefault(name, deque())
            queue.append(ticket)
            self._changed.notify_all()
            mine = self._changed.wait_for(lambda: queue[0] is ticket, max(0.0, timeout_s))
        try:
            yield mine
        finally:
            with self._changed:
                queue.remove(ticket)
                if not queue:
                    del self._queues[name]
                self._changed.notify_all()

    def wait_for_waiters(self, name: str, count: int, timeout_s: float) -> bool:
        """Wait until that many callers wait for the lock of `name`; False when they are not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._queues.get(name, ())) > count, timeout_s)
