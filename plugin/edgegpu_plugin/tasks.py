"""A process's tasks: named threads; the first that ends ends all, and systemd starts the process again."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)

STOP_GRACE_S = 4.0
"""What all tasks together get for their end; what hangs in a driver or a socket is left behind then."""

_LOOK_S = 0.05

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
        self._tasks: Sequence[Task] = ()
        self._threads: list[threading.Thread] = []
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = False
        self._error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether it was told to end, or a task has ended."""
        return self._ended

    def start(self, tasks: Sequence[Task]) -> None:
        """Start each task in a thread of its own."""
        self._tasks = tasks
        self._threads = [
            threading.Thread(target=self._run, args=(task,), name=task.name, daemon=True) for task in tasks
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let `wait` return; may be called from a signal handler, which an Event or a lock may not."""
        self._ended = True
        self._wake.put(None)

    def hold(self, until: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait for something, as long as nothing ends."""
        deadline = time.monotonic() + timeout_s
        while not self._ended and not until() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def wait(self) -> None:
        """Wait for the first end, then stop the others, all at once.

        Raises:
            Exception: what the first task failed with; PluginError when it returned though nobody had told it to.
        """
        self._first()
        deadline = time.monotonic() + self._grace_s
        stops = [threading.Thread(target=_stop, args=(task,), name=task.name, daemon=True) for task in self._tasks]
        for thread in stops:
            thread.start()
        for thread in (*stops, *self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in self._threads:
            if thread.is_alive():
                _LOG.warning("%s does not end within %g s: left behind", thread.name, self._grace_s)
        if self._error is not None:
            raise self._error

    def _first(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._wake.get(timeout=_MIND_S)

    def _run(self, task: Task) -> None:
        try:
            task.run()
            if not self._ended:
                self._error = PluginError(f"cannot go on: {task.name} ended by itself; the process must start anew")
        except Exception as error:  # noqa: BLE001  (the border of a task: the process ends with it)
            if self._ended:
                _LOG.warning("%s failed at the end: %s", task.name, error)
            else:
                self._error = error
        finally:
            self.end()


def _stop(task: Task) -> None:
    try:
        task.stop()
    except Exception:  # noqa: BLE001  (the border of a task)
        _LOG.exception("cannot stop %s cleanly", task.name)
