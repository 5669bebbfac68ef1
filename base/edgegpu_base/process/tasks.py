"""Tasks of a process as named threads: when one ends, all are ended, and systemd restarts the process."""

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
"""How long all tasks together may take to end; a task that hangs in a driver or a socket is then abandoned."""

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Task:
    """A task that runs until `stop`, which another thread may call at any time, even before `run`."""

    name: str
    run: Callable[[], None]
    stop: Callable[[], None]


class Repeated:
    """Does something again and again, from one pause after its start on, as a task."""

    def __init__(self, what: Callable[[], object], *, every_s: float) -> None:
        """Take what is done, and the seconds of a pause."""
        self._what = what
        self._every_s = every_s
        self._stopping = threading.Event()

    def run(self) -> None:
        """Do it until `stop`."""
        while not self._stopping.wait(self._every_s):
            self._what()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()


class TaskGroup:
    """A group of concurrent tasks; `end` may come at any time, even before there are tasks."""

    def __init__(
        self, *, grace_s: float = STOP_GRACE_S, ended_by_itself: Callable[[str], Exception] | None = None
    ) -> None:
        """Prepare the group.

        Args:
            grace_s: how long all tasks together may take to end.
            ended_by_itself: makes the error for a task of this name that returns without being stopped.
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
        """Make these signals end the group; to be called by the main thread.

        Python runs a handler between two steps of the main thread, so a handler cannot end a wait that begins just
        after the signal. The byte that the interpreter writes to the pipe at the signal itself can.
        """
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda _number, _frame: self.end())

    @property
    def ended(self) -> bool:
        """Whether the group was asked to end, or a task has ended."""
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
        """Make `wait` return; may be called from a signal handler, where an Event or a lock may not be used.

        Args:
            error: what `wait` raises then, unless the group was asked to end before.
        """
        if error is not None and not self._ended:
            self._error = error
        self._ended = True
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so the wait ends anyway
            os.write(self._wake, b"\0")

    def wait_until(self, until: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait until a condition holds, the group ends, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not self._ended and not until() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def wait(self) -> None:
        """Wait for the first end, then stop all other tasks at once.

        Raises:
            Exception: the error of the first task; EdgegpuError, or the error of `ended_by_itself`, when that task
                returned without being stopped.
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
