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

    def __init__(self, ready: Callable[[], None] = lambda: None) -> None:
        """Begin with no loops; `ready` is called once, when all loops that can run do."""
        self._loops: Mapping[str, LoopHealth] = {}
        self._ready, self._told = ready, threading.Lock()

    def begun(self) -> None:
        """Report that all loops of this box run, or that it is known why not; any thread may call it, repeatedly."""
        if self._told.acquire(blocking=False):
            self._ready()

    def watch(self, loops: Mapping[str, LoopHealth]) -> None:
        """Watch exactly these loops from now on."""
        self._loops = dict(loops)

    def hanging(self) -> str:
        """Return a sentence about the first loop that hangs; empty while all run."""
        for name, loop in self._loops.items():
            if (age_s := loop.age_s()) > loop.limit_s:
                return f"the {name} has not turned for {age_s:.0f} s"
        return ""


class VitalNotifier(Notifier):
    """A notifier in front of another one; it feeds the watchdog only while all loops run."""

    def __init__(self, notifier: Notifier, vitals: LoopHealthTable) -> None:
        """Build the notifier on top of another one."""
        super().__init__(watchdog_s=notifier.watchdog_s)
        self._notifier, self._vitals, self._said = notifier, vitals, ""

    def ready(self) -> None:
        """Report that the start is complete."""
        self._notifier.ready()

    def status(self, text: str) -> None:
        """Report a line about the state."""
        self._notifier.status(text)

    def watchdog(self) -> None:
        """Feed the watchdog if no loop hangs."""
        hanging = self._vitals.hanging()
        if not hanging:
            self._said = ""
            self._notifier.watchdog()
        elif not self._said:
            self._said = hanging
            _LOG.error("%s: the watchdog is not fed, so that this process is started anew", hanging)

    def extend_timeout(self, seconds: float) -> None:
        """Report that starting or stopping takes so much longer."""
        self._notifier.extend_timeout(seconds)

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._notifier.stopping()
