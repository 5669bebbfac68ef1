"""How an act waits: until something has come, its time is over, or the agent ends."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from edgegpu_agent.ports import ActStop

T = TypeVar("T")


class ActionTimer:
    """Time for all acts of one agent; it runs `speed` times as fast as that of the clock: a test waits less."""

    def __init__(
        self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic, speed: float = 1.0
    ) -> None:
        """Begin. `stop` is set once, when the agent ends."""
        self._stop = stop
        self._clock = clock
        self._speed = speed

    def now_s(self) -> float:
        """Return seconds that only rise."""
        return self._clock() * self._speed

    def pause(self, seconds: float) -> None:
        """Wait so long.

        Raises:
            ActStop: the agent ends.
        """
        if self._stop.wait(seconds / self._speed):
            raise ActStop("the agent ends")

    def until(self, look: Callable[[], T | None], *, every_s: float, within_s: float) -> T | None:
        """Call `look` again and again, and return what it returned first; None when time is over.

        Raises:
            ActStop: the agent ends.
        """
        deadline = self.now_s() + within_s
        while (found := look()) is None and self.now_s() < deadline:
            self.pause(every_s)
        return found
