"""How long the partitions of a controller that is dead or stopped stay with it: the others shall take them."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from edgegpu_cloud.store.store import ControllerStore, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.kept import Kept

MOST_MOVE_S = 24.0
"""So long partitions may stay with a controller that is away, while another one works and no further one goes.

A controller counts as live for `leases.lost_s`, 8 s, after its last beat: so the last of three takes half of them
first, and the rest once the second one that is away counts no more. Looks of a slow machine add to that."""

_EVERY_S = 0.2


class PartitionMoves:
    """`tick` it often.

    A move is timed from the moment at which its controller and all that went after it are away, another one works, and
    the database answers. A controller works from its first beat: before that it starts.
    """

    def __init__(self, controllers: Sequence[Kept], store: ControllerStore) -> None:
        """Watch controllers, whose names in the store are `controller-1` and so on, in this order."""
        self._controllers = {f"controller-{number}": one for number, one in enumerate(controllers, start=1)}
        self._store = store
        self._next_s = 0.0
        self._answers_since_s = 0.0
        self._away_since_s: dict[str, float] = {}
        self._works_since_s: dict[str, float] = {}
        self._waited_s: dict[str, float] = {}
        self._beats: dict[str, tuple[str, int]] = {}
        self.taken_s: list[float] = []
        self.most_s = 0.0
        """The longest time for which partitions waited, whether they were taken in the end or not."""

    def tick(self) -> None:
        """Look who is away, and who holds what, five times a second."""
        now = time.monotonic()
        if len(self._controllers) < 2 or now < self._next_s:
            return
        self._next_s = now + _EVERY_S
        for name, one in self._controllers.items():
            if one.works:
                self._away_since_s.pop(name, None)
                self._waited_s.pop(name, None)
            else:
                self._away_since_s.setdefault(name, now)
                self._works_since_s.pop(name, None)
        try:
            held = self._read(now)
        except StoreError:
            self._answers_since_s = time.monotonic()
            return
        for name in [*self._away_since_s]:
            self._see(name, now, holds=bool(held[name]))

    def _see(self, name: str, now: float, *, holds: bool) -> None:
        if holds and self._works_since_s:
            began_s = max(*self._away_since_s.values(), min(self._works_since_s.values()), self._answers_since_s)
            self._waited_s[name] = max(0.0, now - began_s)
            self.most_s = max(self.most_s, self._waited_s[name])
        elif not holds and name in self._waited_s:
            self.taken_s.append(self._waited_s.pop(name))

    def _read(self, now: float) -> dict[str, int]:
        """Return how many partitions each controller holds, and note who has begun to work."""
        found: dict[str, int] = defaultdict(int)
        with self._store.read() as tx:
            for lease in tx.leases.all():
                found[lease.holder] += 1
            beats = {one.name: (one.instance, one.beat) for one in tx.leases.controllers()}
        for name, beat in beats.items():
            if self._beats.get(name, beat) != beat and self._controllers[name].works:
                self._works_since_s.setdefault(name, now)
        self._beats = beats
        return found
