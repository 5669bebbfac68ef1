"""The rules by which controllers share the boxes of one store: who holds which partitions, and when. Imports no I/O.

A box belongs to a partition for ever (`store.records.partition_of`); a controller works for the boxes of the partitions
that it holds. It holds them by leases in the store: each has a holder and a fence, a number that rises with each change
of the holder, and each transaction of a controller checks the fences of the partitions that it writes for. That is what
makes two writers impossible. The rules below say when a lease changes its holder.

No rule compares the clocks of two machines. A controller raises a number of its own in the store (its beat) every
`renew_s`; each of the others counts, by its own monotonic clock, for how long it has seen no change. Only the time in
which it could read the store counts: after an outage of the database nobody takes anybody else for dead.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgegpu_cloud.store.records import PARTITIONS, ControllerBeat, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """The times of leases in seconds; all controllers of a store have the same."""

    renew_s: float = 2.0
    """How often a controller raises its beat."""
    lost_s: float = 8.0
    """A controller that is silent for so long has lost its leases, and stops acting by them itself."""
    look_s: float = 1.0
    """How often a controller reads who holds what."""


@dataclass(slots=True)
class _SeenBeat:
    beat: tuple[str, int]
    place: str
    silent_s: float = 0.0
    changes: int = 0


@dataclass(slots=True)
class BeatWatch:
    """For how long each controller has been silent, as this one has seen it."""

    times: LeaseTimes
    _looked_s: float | None = None
    _seen: dict[str, _SeenBeat] = field(default_factory=dict)

    def look(self, beats: Iterable[ControllerBeat], now_s: float) -> None:
        """Take in what the store says now; `now_s` is by this machine's monotonic clock."""
        passed_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, 2 * self.times.look_s)
        self._looked_s = now_s
        before, self._seen = self._seen, {}
        for one in beats:
            beat, seen = (one.instance, one.beat), before.get(one.name)
            if seen is None:
                seen = _SeenBeat(beat, one.place)
            elif seen.beat == beat:
                seen.silent_s += passed_s
            else:
                seen = _SeenBeat(beat, one.place, changes=seen.changes + 1)
            self._seen[one.name] = seen

    def live(self) -> frozenset[str]:
        """Return the controllers that are in the store, and have not been silent for too long."""
        return frozenset(name for name, seen in self._seen.items() if seen.silent_s < self.times.lost_s)

    def knows(self, name: str) -> bool:
        """Whether the store has a controller of this name."""
        return name in self._seen

    def is_at(self, name: str, place: str) -> bool:
        """Whether a controller's process runs, or ran, at this place."""
        return bool(place) and name in self._seen and self._seen[name].place == place

    def has_beaten(self, name: str) -> bool:
        """Whether a controller was seen to raise its beat, or to begin anew."""
        seen = self._seen.get(name)
        return seen is not None and seen.changes > 0


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """The next step of one controller: leases that it takes, and partitions that it gives up."""

    take: tuple[Lease, ...] = ()
    release: tuple[int, ...] = ()


def quota(me: str, live: Collection[str]) -> int:
    """Return how many partitions a controller shall hold, of which no other holds more than one less or more."""
    names = sorted({me, *live})
    base, over = divmod(PARTITIONS, len(names))
    return base + (names.index(me) < over)


def next_step(me: str, leases: Sequence[Lease], live: Collection[str]) -> LeasePlan:
    """Return what a controller takes and gives up, as the leases are now.

    It gives up what is above its share, the highest numbers first. It takes only what is nobody's, or a dead
    controller's: what a live one holds is that one's to give up.
    """
    mine = [one for one in leases if one.holder == me]
    room = quota(me, live) - len(mine)
    if room <= 0:
        surplus = sorted((one.number for one in mine), reverse=True)[: -room or 0]
        return LeasePlan(release=tuple(sorted(surplus)))
    free = [one for one in leases if one.holder != me and one.holder not in live]
    return LeasePlan(take=tuple(sorted(free, key=lambda one: one.number)[:room]))


@dataclass(slots=True, kw_only=True)
class Tenure:
    """The leases that one controller holds: their fences, and whether it may still act by them.

    `instance` is made anew for each process, so that two processes under one name are told apart. `place` is the
    machine and the folder, whose lock one process alone can have; empty where the machine has no identity.
    """

    name: str
    instance: str
    place: str = ""
    times: LeaseTimes = field(default_factory=LeaseTimes)
    fences: dict[int, int] = field(default_factory=dict)
    """Of each partition that is held."""
    renewed_s: float | None = None
    """When the last renewal that succeeded had begun, by the monotonic clock; None before the first."""
    watch: BeatWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = BeatWatch(self.times)

    @property
    def joined(self) -> bool:
        """Whether this controller is one of those that share the boxes."""
        return self.renewed_s is not None

    def valid(self, now_s: float) -> bool:
        """Whether the leases hold now: from their last renewal on for as long as nobody may take them."""
        return self.renewed_s is not None and now_s < self.renewed_s + self.times.lost_s

    def renewal_due(self, now_s: float) -> bool:
        """Whether to raise the beat."""
        return self.renewed_s is None or now_s >= self.renewed_s + self.times.renew_s

    def may_join(self) -> bool:
        """Whether to begin now: no other process under this name can be alive.

        What the store has under this name may be left by this controller, which was killed: the lock of its folder
        proves that. Or another machine was given the same name: then only its silence shows that it is dead.
        """
        watch = self.watch
        return not watch.knows(self.name) or watch.is_at(self.name, self.place) or self.name not in watch.live()

    def name_taken(self) -> bool:
        """Whether another process under this name is alive: this one must not begin."""
        return not self.joined and self.watch.has_beaten(self.name)

    def lost(self, leases: Iterable[Lease]) -> frozenset[int]:
        """Return the partitions that another has taken meanwhile."""
        stand = {one.number: one for one in leases}
        return frozenset(
            number
            for number, fence in self.fences.items()
            if number not in stand or stand[number].fence != fence or stand[number].holder != self.name
        )

    def plan(self, leases: Sequence[Lease]) -> LeasePlan:
        """Return the next step.

        What stands under this name without being held is left by a process that died. All of it is taken, also what is
        above the share: for the others it is a live controller's, so this one alone can give it up, by its next step.
        """
        left = tuple(one for one in leases if one.holder == self.name and one.number not in self.fences)
        return LeasePlan(take=left) if left else next_step(self.name, leases, self.watch.live() | {self.name})

    def renewed(self, began_s: float) -> None:
        """Note that a renewal which began then has succeeded."""
        self.renewed_s = began_s

    def gained(self, fences: Mapping[int, int]) -> None:
        """Note partitions that were taken, with their fences."""
        self.fences.update(fences)

    def gone(self, numbers: Iterable[int]) -> None:
        """Note partitions that were lost or given up."""
        for number in numbers:
            self.fences.pop(number, None)
