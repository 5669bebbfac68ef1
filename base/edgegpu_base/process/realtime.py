"""Runs this process before others for the moment in which a kubelet that starts decides about pods."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)

_TASKS = Path("/proc/self/task")
_LOWEST = 1
"""The least of the real-time priorities: before all ordinary threads, behind whatever else is real-time."""

LONGEST_S = 60.0
"""A kubelet that is away for longer was stopped and did not fall; its socket's appearance is waited for as usual."""


class RealtimePriority:
    """Round-robin real-time scheduling for all threads, taken and given back; used by one thread.

    A process that was started with real-time scheduling keeps what it has.
    A k3s that starts keeps every core busy for seconds. On two cores under load the answer to a new kubelet took
    35 ms in the median and 609 ms at worst, with this 9 and 98 ms.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._denied = False

    def take(self) -> None:
        """Go before others; where that is not permitted, say so once and stay."""
        if self._since_s is None and not self._denied and os.sched_getscheduler(0) == os.SCHED_OTHER:
            self._denied = not _schedule(os.SCHED_RR, _LOWEST)
            self._since_s = self._clock()

    def give_back_late(self) -> None:
        """Give it back when it was taken too long ago."""
        if self._since_s is not None and self._clock() - self._since_s > LONGEST_S:
            self.give_back()

    def give_back(self) -> None:
        """Be an ordinary process again."""
        if self._since_s is not None and not self._denied:
            _schedule(os.SCHED_OTHER, 0)
        self._since_s = None


def _schedule(policy: int, priority: int) -> bool:
    """Set all threads, whose children inherit it; say whether that is permitted."""
    for task in _TASKS.iterdir():
        try:
            os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
        except ProcessLookupError:
            continue  # it has ended meanwhile
        except OSError as error:
            _log.info("cannot run before others while kubelet starts (%s): CAP_SYS_NICE would allow it", error)
            return False
    return True
