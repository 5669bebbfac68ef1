"""What is to be sent whole, and when; the end of inventory.refresh is told after what it was for.

That holds for an agent too that was killed in between.
"""

import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from edgegpu_agent.worker.core import Core
from edgegpu_sync.ids import CommandId, op_name
from edgegpu_sync.messages.downlink import RefreshRequest
from edgegpu_sync.rules.commands import CommandRecord

PATIENCE_S = 60.0
"""How long an end waits for a source that says nothing: then there is nothing to come before it."""

_REFRESH = op_name("inventory.refresh")
_FOR = (RefreshRequest.INVENTORY, RefreshRequest.ALLOC)


@dataclass(frozen=True, slots=True)
class OwedRefresh:
    """An end that waits since `at_s`; `looked`: the act was of this life, and has looked at all that there is."""

    at_s: float
    looked: bool


class OwedRefreshes:
    """Knows what was asked for; holds ends back until inventory and allocations have gone up on their connection."""

    def __init__(self, core: Core, *, rng: random.Random) -> None:
        """Begin with nothing asked for; `rng` is for jitter."""
        self._core, self._rng = core, rng
        self._asked: dict[RefreshRequest, float] = {}
        self._owed: dict[CommandId, OwedRefresh] = {}
        self._free: set[CommandId] = set()

    @property
    def owing(self) -> bool:
        """Whether an end waits."""
        return bool(self._owed)

    def ask(self, want: RefreshRequest, within_s: float) -> None:
        """Have something sent whole, at once or at random within some seconds."""
        at_s = self._core.now_s + (self._rng.uniform(0, within_s) if within_s else 0.0)
        self._asked[want] = min(at_s, self._asked.get(want, at_s))

    def due(self) -> AbstractSet[RefreshRequest]:
        """Return what is to be sent whole now."""
        now_s = self._core.now_s
        return {want for want, at_s in self._asked.items() if at_s <= now_s}

    def done(self, want: RefreshRequest) -> None:
        """Note that it was sent."""
        self._asked.pop(want, None)

    def up(self) -> None:
        """Begin a connection: what the last one took may be lost."""
        self._free.clear()

    def ended(self, record: CommandRecord) -> None:
        """Have sent what a command was for that has ended now."""
        if record.op == _REFRESH:
            self._owe(record, looked=True)

    def _owe(self, record: CommandRecord, *, looked: bool) -> None:
        self._owed[record.id] = OwedRefresh(self._core.now_s, looked)
        for want in _FOR:
            self.ask(want, 0.0)

    def holds(self, record: CommandRecord) -> bool:
        """Whether an end has to wait."""
        if record.op != _REFRESH or not record.state.terminal or record.id in self._free:
            return False
        if record.id not in self._owed:
            self._owe(record, looked=False)
        return self._core.now_s - self._owed[record.id].at_s < PATIENCE_S

    def settle(self, *, inventory: bool, alloc: bool) -> None:
        """Let ends go for which nothing is left to be sent.

        Args:
            inventory: whether the source says anything of the cards.
            alloc: whether it says who holds what, which it does not while the plugin does not answer.
        """
        for id_, debt in list(self._owed.items()):
            there = {
                RefreshRequest.INVENTORY: inventory or not debt.looked,
                RefreshRequest.ALLOC: alloc or not (inventory or debt.looked),
            }
            if not any(want in self._asked and there[want] for want in _FOR):
                self._free.add(id_)
                del self._owed[id_]
