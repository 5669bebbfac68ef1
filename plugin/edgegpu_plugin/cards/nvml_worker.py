"""A thread for NVML calls, which may never return, with a deadline for all callers."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from edgegpu_plugin.errors import NvmlError, NvmlProblem

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    timeout_s: float
    future: "Future[Any]"


class NvmlWorker:
    """The thread that makes one NVML call after another; while one hangs, other callers get the error at once."""

    def __init__(self, *, step: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        """Build the NVML worker.

        Args:
            step: returns which function of the library runs now.
            clock: a monotonic clock in seconds.
        """
        self._step = step
        self._clock = clock
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: tuple[float, float, str] | None = None
        self._thread: threading.Thread | None = None
        self._stopped: Future[None] = Future()

    def stop(self) -> None:
        """End the thread after its present call, and all callers that wait at once."""
        with suppress(InvalidStateError):  # stopped before
            self._stopped.set_result(None)
        self._jobs.put(None)

    def hang(self) -> NvmlError | None:
        """Return the error that callers get while a call is past its deadline; None while no call is."""
        running = self._running
        if running is None or self._clock() < running[1]:
            return None
        return self._hung(running[2])

    def _hung(self, since: str) -> NvmlError:
        return NvmlError(
            NvmlProblem.HANGS,
            f"NVML has hung since {since} in {self._step() or 'a call'}: the driver does not answer; a card may "
            "have fallen off the bus: look at `dmesg | grep -i -e nvrm -e xid`; a reboot ends it",
        )

    def call(self, work: Callable[[], _T], *, timeout_s: float) -> _T:
        """Run `work` on the thread and return its answer.

        Raises:
            NvmlError: of kind HANGS, when the call takes longer, or at once when an earlier call does; of kind FAILED,
                after `stop`.
            Exception: what `work` raises.
        """
        hang = self.hang()
        if hang is not None:
            raise hang
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="nvml-worker", daemon=True)
            self._thread.start()
        future: Future[_T] = Future()
        self._jobs.put(_Job(work, timeout_s, future))
        either: tuple[Future[Any], ...] = (future, self._stopped)
        wait(either, timeout_s, FIRST_COMPLETED)
        waits = future.cancel()
        if future.done() and not waits:
            return future.result()
        if self._stopped.done():
            raise NvmlError(NvmlProblem.FAILED, "cannot ask NVML: this process is ending")
        running = self._running
        if not waits and running is not None:  # this very call hangs: its own deadline may end a moment later
            raise self._hung(running[2])
        raise self.hang() or NvmlError(
            NvmlProblem.HANGS, f"NVML has been busy in {self._step() or 'a call'} for more than {timeout_s:g} s"
        )

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            self._running = (self._clock(), self._clock() + job.timeout_s, time.strftime("%H:%M:%S"))
            try:
                answer = job.work()
            except BaseException as error:  # noqa: BLE001  (the caller gets it)
                self._running = None
                job.future.set_exception(error)
            else:
                self._running = None
                job.future.set_result(answer)
