"""The health of the agent's loops: once they run the agent is ready, and while all run systemd's watchdog is fed."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgegpu_base.process.sdnotify import Notifier

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """A loop: the seconds since its last round, and the limit above which it counts as hanging."""

    age_s: Callable[[], float]
    limit_s: float


class LoopHealthTable:
    """The loops to watch. One thread sets them, another reads them; a missing broker makes no loop hang."""

    def __init__(self, notifier: Notifier) -> None:
        """Begin with no loops; the notifier reports once that all loops that can run do."""
        self._loops: Mapping[str, LoopHealth] = {}
        self._notifier, self._reported, self._hanging = notifier, threading.Lock(), ""

    def report_ready(self) -> None:
        """Report that all loops of this box run, or that it is known why not; any thread may call it, repeatedly."""
        if self._reported.acquire(blocking=False):
            self._notifier.ready()

    def watch(self, loops: Mapping[str, LoopHealth]) -> None:
        """Watch exactly these loops from now on."""
        self._loops = dict(loops)

    def hanging(self) -> str:
        """Return a sentence about the first loop that hangs; empty while all run."""
        for name, loop in self._loops.items():
            if (age_s := loop.age_s()) > loop.limit_s:
                return f"the {name} has not turned for {age_s:.0f} s"
        return ""

    def feed_watchdog(self) -> None:
        """Feed systemd's watchdog if no loop hangs."""
        hanging = self.hanging()
        if not hanging:
            self._notifier.watchdog()
        elif not self._hanging:
            _LOG.error("%s: the watchdog is not fed, so that this process is started anew", hanging)
        self._hanging = hanging
