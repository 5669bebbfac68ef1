"""The time of a settlement: a clock, a pause that ends with the agent, and timeouts."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from edgegpu_agent.ports import ActionStopped
from edgegpu_base.kube import Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The timeouts of a settlement, in seconds."""

    look_s: float = 1.0
    """Between two reads of a rollout."""
    rollout_s: float = 300.0
    """For the whole rollout."""
    blame_s: float = 45.0
    """How long the limits must keep a pod from its card to be blamed: freed units are seen late (6 s, once 51 s)."""
    forced_s: float = 5.0
    """The same for forced limits: there a waiting pod is expected."""
    ready_s: float = 60.0
    """How long pods with cards may take to be ready; then the settlement says so, but undoes nothing."""
    restore_s: float = 180.0
    api_s: float = 300.0
    """How long the API server may be away: its k3s may be restarting."""
    inventory_s: float = 30.0
    """How long a node's inventory may be out of date, as it is for a moment after kubelet or the plugin starts."""
    holder_s: float = 60.0
    """How long to wait until the holder of the lease is known."""


class SettlementTimer:
    """The clock, the pauses and the timeouts of a settlement; `stop` ends every pause with ActionStopped."""

    def __init__(
        self,
        patience: Timeouts | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Build the settlement timer.

        Args:
            patience: the timeouts; the defaults unless given.
            clock: monotonic seconds.
            pause: waits for so many seconds; a real wait unless given.
        """
        self.patience = patience or Timeouts()
        self.clock = clock
        self._ending = threading.Event()
        self._pause = pause or self._ending.wait

    def stop(self) -> None:
        """End all pauses, now and later."""
        self._ending.set()

    def pause(self, seconds: float) -> None:
        """Wait for so many seconds. Raises ActionStopped when the agent ends."""
        self._pause(seconds)
        if self._ending.is_set():
            raise ActionStopped

    def retry_reads(self, call: Callable[[], T]) -> T:
        """Make a call that only reads, and repeat it while the API server is away.

        Raises:
            KubeError: the API server refuses, or is away for longer than `api_s`.
        """
        ends = self.clock() + self.patience.api_s
        while True:
            try:
                return call()
            except Unavailable:
                if self.clock() >= ends:
                    raise
            self.pause(self.patience.look_s)
