"""Real-time priority for this process while a starting kubelet decides about pods."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)

_TASKS = Path("/proc/self/task")
_LOWEST = 1
"""The lowest real-time priority: above all ordinary threads, below all other real-time ones."""

LONGEST_S = 60.0
"""How long the priority is kept: a kubelet that is away for longer was stopped and did not crash. Its return is then
awaited at ordinary priority."""


class RealtimePriority:
    """Round-robin real-time scheduling for all threads, taken and given back by one thread.

    A process that was started with real-time scheduling keeps it. A starting k3s keeps every core busy for seconds. On
    two cores under load the answer to a new kubelet took 35 ms in the median and 609 ms at worst; with real-time
    priority it took 9 and 98 ms.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._denied = False

    def take(self) -> None:
        """Take real-time priority; if it is not permitted, log that once and go on without."""
        if self._since_s is None and not self._denied and os.sched_getscheduler(0) == os.SCHED_OTHER:
            self._denied = not _schedule(os.SCHED_RR, _LOWEST)
            self._since_s = self._clock()

    def give_back_late(self) -> None:
        """Give the priority back if it was taken more than `LONGEST_S` ago."""
        if self._since_s is not None and self._clock() - self._since_s > LONGEST_S:
            self.give_back()

    def give_back(self) -> None:
        """Return to ordinary scheduling."""
        if self._since_s is not None and not self._denied:
            _schedule(os.SCHED_OTHER, 0)
        self._since_s = None


def _schedule(policy: int, priority: int) -> bool:
    """Set the scheduling of all threads, which new threads inherit; return whether that is permitted."""
    for task in _TASKS.iterdir():
        try:
            os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
        except ProcessLookupError:
            continue  # the thread has ended meanwhile
        except OSError as error:
            _log.info("cannot run before others while kubelet starts (%s): CAP_SYS_NICE would allow it", error)
            return False
    return True
