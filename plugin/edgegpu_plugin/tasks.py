"""A process's tasks: named threads; the first that ends ends all, and systemd starts the process again."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

_LOG = logging.getLogger(__name__)

STOP_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Task:
    """What runs until it is told to stop; `stop` is called from another thread."""

    name: str
    run: Callable[[], None]
    stop: Callable[[], None]


class TaskGroup:
    """Runs tasks side by side."""

    def __init__(self, tasks: list[Task]) -> None:
        self._tasks = tasks
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = False
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start each task in a thread of its own."""
        self._threads = [threading.Thread(target=self._run, args=(task,), name=task.name) for task in self._tasks]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def end(self) -> None:
        """Let `wait` return; may be called from a signal handler, which an Event or a lock may not."""
        self._ended = True
        self._wake.put(None)

    def wait(self) -> None:
        """Wait for the first end, then stop the others in reverse order.

        Raises:
            Exception: what the first task failed with.
        """
        self._wake.get()
        for task in reversed(self._tasks):
            try:
                task.stop()
            except Exception:  # noqa: BLE001  (the border of a task)
                _LOG.exception("cannot stop %s cleanly", task.name)
        for thread in reversed(self._threads):
            thread.join(STOP_GRACE_S)
            if thread.is_alive():
                _LOG.warning("%s does not end within %g s: left behind", thread.name, STOP_GRACE_S)
        if self._error is not None:
            raise self._error

    def _run(self, task: Task) -> None:
        try:
            task.run()
            if not self._ended:
                _LOG.error("%s ended by itself", task.name)
        except Exception as error:  # noqa: BLE001  (the border of a task: the process ends with it)
            if not self._ended:
                self._error = error
        finally:
            self.end()
