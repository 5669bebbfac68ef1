"""Requests to send telemetry completely; the result of inventory.refresh goes up after the inventory itself.

That command also sends what was measured, without waiting for it.

This also holds for an agent that was killed in between.
"""

import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from edgegpu_agent.worker.core import Core
from edgegpu_sync.ids import CommandId, op_name
from edgegpu_sync.messages.downlink import RefreshRequest
from edgegpu_sync.rules.commands import CommandRecord

PATIENCE_S = 60.0
"""How long a result waits for a source that has nothing; then nothing has to go up before it."""

_REFRESH = op_name("inventory.refresh")
_FOR = (RefreshRequest.INVENTORY, RefreshRequest.ALLOC)


@dataclass(frozen=True, slots=True)
class OwedRefresh:
    """A result that waits since `at_s`; `looked`: the action ran in this process, and has read everything."""

    at_s: float
    looked: bool


class OwedRefreshes:
    """The requested refreshes; they hold results back until inventory and allocations have gone up."""

    def __init__(self, core: Core, *, rng: random.Random) -> None:
        """Begin without requests; `rng` is for jitter."""
        self._core, self._rng = core, rng
        self._asked: dict[RefreshRequest, float] = {}
        self._owed: dict[CommandId, OwedRefresh] = {}
        self._free: set[CommandId] = set()

    @property
    def has_waiting(self) -> bool:
        """Whether a result waits."""
        return bool(self._owed)

    def ask(self, want: RefreshRequest, within_s: float) -> None:
        """Request that something be sent completely, at once or at a random time within some seconds."""
        at_s = self._core.now_s + (self._rng.uniform(0, within_s) if within_s else 0.0)
        self._asked[want] = min(at_s, self._asked.get(want, at_s))

    def due(self) -> AbstractSet[RefreshRequest]:
        """Return what must be sent completely now."""
        now_s = self._core.now_s
        return {want for want, at_s in self._asked.items() if at_s <= now_s}

    def done(self, want: RefreshRequest) -> None:
        """Record that something was sent."""
        self._asked.pop(want, None)

    def on_connected(self) -> None:
        """Begin a connection: what was sent on the last one may be lost."""
        self._free.clear()

    def ended(self, record: CommandRecord) -> None:
        """Request the refresh for a command inventory.refresh that has ended now."""
        if record.op == _REFRESH:
            self._owe(record, looked=True)

    def _owe(self, record: CommandRecord, *, looked: bool) -> None:
        self._owed[record.id] = OwedRefresh(self._core.now_s, looked)
        for want in (*_FOR, RefreshRequest.METRICS):
            self.ask(want, 0.0)

    def holds(self, record: CommandRecord) -> bool:
        """Return whether a command's result has to wait."""
        if record.op != _REFRESH or not record.state.terminal or record.id in self._free:
            return False
        if record.id not in self._owed:
            self._owe(record, looked=False)
        return self._core.now_s - self._owed[record.id].at_s < PATIENCE_S

    def settle(self, *, inventory: bool, alloc: bool) -> None:
        """Release the results for which nothing is left to be sent.

        Args:
            inventory: whether the source has an inventory.
            alloc: whether the source has allocations, which it has not while the plugin does not answer.
        """
        for id_, debt in list(self._owed.items()):
            there = {
                RefreshRequest.INVENTORY: inventory or not debt.looked,
                RefreshRequest.ALLOC: alloc or not (inventory or debt.looked),
            }
            if not any(want in self._asked and there[want] for want in _FOR):
                self._free.add(id_)
                del self._owed[id_]
