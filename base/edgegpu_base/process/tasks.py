"""A process's tasks: named threads; the first that ends ends all, and systemd starts the process again."""

import contextlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgegpu_base.errors import EdgegpuError

_LOG = logging.getLogger(__name__)

STOP_GRACE_S = 4.0
"""What all tasks together get for their end; what hangs in a driver or a socket is left behind then."""

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Task:
    """What runs until it is told to stop; `stop` is called from another thread, at any time, also before `run`."""

    name: str
    run: Callable[[], None]
    stop: Callable[[], None]


class TaskGroup:
    """Runs tasks side by side; `end` may come at any time, before there are tasks too."""

    def __init__(
        self, *, grace_s: float = STOP_GRACE_S, ended_by_itself: Callable[[str], Exception] | None = None
    ) -> None:
        """Prepare the group.

        Args:
            grace_s: what all tasks together get for their end.
            ended_by_itself: makes the error for a task of this name that returns though nobody has told it to.
        """
        self._grace_s = grace_s
        self._ended_by_itself = ended_by_itself or _ended_by_itself
        self._tasks: Sequence[Task] = ()
        self._threads: list[threading.Thread] = []
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        weakref.finalize(self, _close, self._woken, self._wake)
        self._ended = False
        self._error: BaseException | None = None

    def end_on(self, *signals: signal.Signals) -> None:
        """Let these signals end the group; to be called by the main thread.

        Python runs a handler between two steps of the main thread: it cannot end a wait that begins just after a
        signal came. What the interpreter writes to the pipe at the signal itself can.
        """
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda _number, _frame: self.end())

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

    def run(self, tasks: Sequence[Task]) -> None:
        """Start the tasks and wait for the first end, as `wait` does."""
        self.start(tasks)
        self.wait()

    def end(self, error: BaseException | None = None) -> None:
        """Let `wait` return; may be called from a signal handler, which an Event or a lock may not.

        Args:
            error: what `wait` raises then, unless the group was told to end before.
        """
        if error is not None and not self._ended:
            self._error = error
        self._ended = True
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._wake, b"\0")

    def hold(self, until: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait for something, as long as nothing ends."""
        deadline = time.monotonic() + timeout_s
        while not self._ended and not until() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def wait(self) -> None:
        """Wait for the first end, then stop the others, all at once.

        Raises:
            Exception: what the first task failed with; EdgegpuError, or what `ended_by_itself` makes, when it returned
                though nobody had told it to.
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
        while not self._ended:
            os.read(self._woken, 4096)

    def _run(self, task: Task) -> None:
        error: Exception | None = None
        try:
            task.run()
            if not self._ended:
                error = self._ended_by_itself(task.name)
        except Exception as failure:  # noqa: BLE001  (the border of a task: the process ends with it)
            if self._ended:
                _LOG.warning("%s failed at the end: %s", task.name, failure)
            error = failure
        finally:
            self.end(error)


def _ended_by_itself(name: str) -> EdgegpuError:
    return EdgegpuError(f"cannot go on: {name} ended by itself; the process must start anew")


def _close(*descriptors: int) -> None:
    for one in descriptors:
        os.close(one)


def _stop(task: Task) -> None:
    try:
        task.stop()
    except Exception:  # noqa: BLE001  (the border of a task)
        _LOG.exception("cannot stop %s cleanly", task.name)
