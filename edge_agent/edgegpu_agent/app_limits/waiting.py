"""What a settlement needs of its process: time, a pause that ends with the agent, and how patient it is."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from edgegpu_agent.kube import KubeUnavailable
from edgegpu_agent.ports import ActionStopped

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long things may take, in seconds."""

    look_s: float = 1.0
    """Between two looks at a rollout."""
    rollout_s: float = 300.0
    """For the whole rollout."""
    blame_s: float = 45.0
    """How long the limits must keep a pod from its card: units that were freed are seen late (6 s, once 51 s)."""
    forced_s: float = 5.0
    """The same where the limits were forced: that its pod waits is no surprise then."""
    ready_s: float = 60.0
    """How long pods that have their cards may take to be ready before that is said; it is not undone for it."""
    restore_s: float = 180.0
    api_s: float = 300.0
    """For the API server to come back: its k3s may be restarting."""
    inventory_s: float = 30.0
    """For a node's inventory to be current, which it is not for a moment after a start of kubelet or plugin."""
    holder_s: float = 60.0
    """Until it is known who holds the lease."""


class SettlementTimer:
    """Time and patience; `stop` ends every pause with ActStop."""

    def __init__(
        self,
        patience: Timeouts | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        """Build the settlement timer.

        Args:
            patience: its defaults unless given.
            clock: monotonic seconds.
            pause: waits so many seconds; the real one unless given.
        """
        self.patience = patience or Timeouts()
        self.clock = clock
        self._ending = threading.Event()
        self._pause = pause or self._really

    def stop(self) -> None:
        """Let all pauses end, now and later."""
        self._ending.set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises ActStop when the agent ends."""
        self._pause(seconds)
        if self._ending.is_set():
            raise ActionStopped

    def _really(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def calmly(self, call: Callable[[], T]) -> T:
        """Make a call that only reads, again while the API server is away.

        Raises:
            KubeError: it refuses, or is away for longer than `api_s`.
        """
        ends = self.clock() + self.patience.api_s
        while True:
            try:
                return call()
            except KubeUnavailable:
                if self.clock() >= ends:
                    raise
            self.pause(self.patience.look_s)
