"""The numbers of the whole fleet for monitoring: counted in SQL, and no more often than every few seconds."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgegpu_cloud.fleet.views import PRESENT_S
from edgegpu_cloud.store.notes import Refusal
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.store.summaries.box_list import BoxCounts, BoxQuery

FRESH_S = 10.0
"""Numbers that are younger are given again: whoever asks often costs the database nothing."""
ENDED_S = 3_600.0
"""Commands that have ended count for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNumbers:
    """What a fleet is at `at_s`, seconds since 1970.

    `commands` by state: those under way, and those that ended within the last hour; `WAITING` has no result yet.
    `partitions` by the name of the controller that holds them; empty: nobody does. `messages`: all that boxes have sent
    and a controller has taken. `refusals`: all requests to enrol that were refused, by kind.
    """

    at_s: float
    boxes: BoxCounts
    commands: Mapping[str, int]
    alerts: int
    partitions: Mapping[str, int]
    messages: int
    refusals: Mapping[Refusal, int]


class FleetCounter:
    """Counts the fleet, for any thread."""

    def __init__(self, store: ControllerStore, *, clock: Callable[[], float]) -> None:
        """Take a store; `clock` returns seconds since 1970."""
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._last: FleetNumbers | None = None

    def numbers(self) -> FleetNumbers:
        """Return the numbers, at most `FRESH_S` old.

        Raises:
            StoreError: the database does not answer.
        """
        with self._lock:
            now_s = self._clock()
            if self._last is None or not 0 <= now_s - self._last.at_s < FRESH_S:
                self._last = self._counted(now_s)
            return self._last

    def _counted(self, now_s: float) -> FleetNumbers:
        with self._store.read() as tx:
            holders: dict[str, int] = {}
            for lease in tx.leases.all():
                holders[lease.holder or ""] = holders.get(lease.holder or "", 0) + 1
            return FleetNumbers(
                at_s=now_s,
                boxes=tx.list.counts(BoxQuery(present_since_s=now_s - PRESENT_S)),
                commands=tx.commands.by_state(ended_since_s=now_s - ENDED_S),
                alerts=tx.alerts.firing(),
                partitions=holders,
                messages=tx.notes.messages(),
                refusals=tx.notes.refusals(),
            )
