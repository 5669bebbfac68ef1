"""A process's tasks: named threads; the first that ends ends all, and what supervises the process starts it again."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError

_LOG = logging.getLogger(__name__)

STOP_GRACE_S = 4.0
"""What all tasks together get for their end; what hangs in a socket is left behind then."""

_MIND_S = 1.0
"""Python runs a signal's handler between two steps of the main thread: what comes just before a wait is seen late."""


@dataclass(frozen=True, slots=True)
class Task:
    """What runs until it is told to stop; `stop` is called from another thread, at any time, also before `run`."""

    name: str
    run: Callable[[], None]
    stop: Callable[[], None]


class TaskGroup:
    """Runs tasks side by side; `end` may come at any time, before there are tasks too."""

    def __init__(self, *, grace_s: float = STOP_GRACE_S) -> None:
        self._grace_s = grace_s
        self._wake: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._ended = False

    def end(self, error: BaseException | None = None) -> None:
        """Let `run` return; may be called from a signal handler, which an Event or a lock may not."""
        self._ended = True
        self._wake.put(error)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run each task in a thread of its own until the first end, then stop them all at once.

        Raises:
            Exception: what the first task failed with; CloudError when it returned though nobody had told it to.
        """
        threads = [threading.Thread(target=self._one, args=(task,), name=task.name, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        error = self._first()
        deadline = time.monotonic() + self._grace_s
        stops = [threading.Thread(target=_stop, args=(task,), name=task.name, daemon=True) for task in tasks]
        for thread in stops:
            thread.start()
        for thread in (*stops, *threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        if error is not None:
            raise error

    def _first(self) -> BaseException | None:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._wake.get(timeout=_MIND_S)

    def _one(self, task: Task) -> None:
        try:
            task.run()
        except Exception as error:  # noqa: BLE001  (the border of a task: the process ends with it)
            self.end(error)
        else:
            self.end(None if self._ended else CloudError(f"cannot go on: {task.name} ended by itself"))


def _stop(task: Task) -> None:
    try:
        task.stop()
    except Exception:  # noqa: BLE001  (the border of a task)
        _LOG.exception("cannot stop %s cleanly", task.name)
