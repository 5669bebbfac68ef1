"""How long the partitions of a controller that is dead or stopped stay with it: the others shall take them."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from edgegpu_cloud.store.store import ControllerStore, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.kept import Kept

_EVERY_S = 0.2


class PartitionMoves:
    """`tick` it often. `taken_s` has, for each controller that was away long enough, how long it took."""

    def __init__(self, controllers: Sequence[Kept], store: ControllerStore) -> None:
        """Watch controllers, whose names in the store are `controller-1` and so on, in this order."""
        self._controllers, self._store = controllers, store
        self._next_s = 0.0
        self._away_since_s: dict[str, float] = {}
        self.taken_s: list[float] = []

    def tick(self) -> None:
        """Look who is away, and who holds what, five times a second."""
        now = time.monotonic()
        if len(self._controllers) < 2 or now < self._next_s:
            return
        self._next_s = now + _EVERY_S
        for number, one in enumerate(self._controllers, start=1):
            if one.works:
                self._away_since_s.pop(f"controller-{number}", None)
            else:
                self._away_since_s.setdefault(f"controller-{number}", now)
        if not self._away_since_s:
            return
        held = self._held()
        for name in [name for name in self._away_since_s if held is not None and not held[name]]:
            self.taken_s.append(now - self._away_since_s.pop(name))

    def _held(self) -> dict[str, int] | None:
        """Return how many partitions each controller holds; None while the database is away."""
        found: dict[str, int] = defaultdict(int)
        try:
            with self._store.read() as tx:
                for lease in tx.leases.all():
                    found[lease.holder] += 1
        except StoreError:
            return None
        return found
