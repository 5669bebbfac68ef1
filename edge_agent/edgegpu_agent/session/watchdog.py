"""Whether the loops of the agent turn: it is ready when they do, and systemd's watchdog is fed while all of them do."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgegpu_base.process.sdnotify import Notifier

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """A loop: how many seconds ago it turned last, and from when on it counts as one that hangs."""

    age_s: Callable[[], float]
    limit_s: float


class LoopHealthTable:
    """The loops that turn now. Set by one thread and read by another; a broker that is away hangs no loop."""

    def __init__(self, ready: Callable[[], None] = lambda: None) -> None:
        """Begin with none; `ready` is told once that all turn which can."""
        self._loops: Mapping[str, LoopHealth] = {}
        self._ready, self._told = ready, threading.Lock()

    def begun(self) -> None:
        """Say that what this box can do turns now, or that it is known why it cannot; at any time, by any thread."""
        if self._told.acquire(blocking=False):
            self._ready()

    def watch(self, loops: Mapping[str, LoopHealth]) -> None:
        """Watch these from now on, and no others."""
        self._loops = dict(loops)

    def hanging(self) -> str:
        """Return the first loop that hangs, in words; empty while all turn."""
        for name, loop in self._loops.items():
            if (age_s := loop.age_s()) > loop.limit_s:
                return f"the {name} has not turned for {age_s:.0f} s"
        return ""


class VitalNotifier:
    """Tells systemd what another notifier would, but feeds the watchdog only while all loops turn."""

    def __init__(self, notifier: Notifier, vitals: LoopHealthTable) -> None:
        """Speak through that notifier."""
        self._notifier, self._vitals, self._said = notifier, vitals, ""
        self.watchdog_s = notifier.watchdog_s

    def ready(self) -> None:
        """All is set up."""
        self._notifier.ready()

    def status(self, text: str) -> None:
        """Show this line."""
        self._notifier.status(text)

    def watchdog(self) -> None:
        """Still alive, if all loops are."""
        hanging = self._vitals.hanging()
        if not hanging:
            self._said = ""
            self._notifier.watchdog()
        elif not self._said:
            self._said = hanging
            _LOG.error("%s: the watchdog is not fed, so that this process is started anew", hanging)

    def extend_timeout(self, seconds: float) -> None:
        """Starting or stopping takes this much longer."""
        self._notifier.extend_timeout(seconds)

    def stopping(self) -> None:
        """On the way out."""
        self._notifier.stopping()
