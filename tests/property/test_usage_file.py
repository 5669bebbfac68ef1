"""A model of the usage file: every order of the steps of processes that race for the last bytes, and kills between.

The steps are those of `plugin/limiter/common/usage.c`, each one access to the file: take the lock or that of a dead
holder, read one slot after the other, count in the own slot, give the lock back; at a refusal free the slots of the
dead and try once more. What a process has of the card it takes after it has counted it, and gives back before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from property.orders import walk

LIMIT = 2
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Process:
    """`at` is its next step; `wants` what it asks for; `seen` what it has summed up, from slots below `next_slot`."""

    at: str
    wants: int
    slot: int = 0
    has: int = 0
    alive: bool = True
    taken: bool = True
    """Its slot; of a dead process until somebody frees it."""
    seen: int = 0
    next_slot: int = 0
    tried: int = 0


@dataclass(frozen=True, slots=True)
class World:
    lock: int
    processes: tuple[Process, ...]
    kills: int

    def put(self, index: int, lock: int | None = None, **changes: Any) -> "World":  # noqa: ANN401  (the fields' own)
        one = replace(self.processes[index], **changes)
        others = (*self.processes[:index], one, *self.processes[index + 1 :])
        return replace(self, processes=others, lock=self.lock if lock is None else lock)


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds; a model without one of them has to see what comes of it."""

    locks: bool = True
    counts_first: bool = True

    def lock(self, world: World, index: int) -> World | None:
        if self.locks and world.lock != NOBODY and world.processes[world.lock].alive:
            return None
        return world.put(index, lock=index, at="read", seen=0, next_slot=0)

    def read(self, world: World, index: int) -> World:
        one = world.processes[index]
        if one.next_slot < len(world.processes):
            other = world.processes[one.next_slot]
            return world.put(index, next_slot=one.next_slot + 1, seen=one.seen + (other.slot if other.taken else 0))
        first = "count" if self.counts_first else "take"
        return world.put(index, at=first if one.seen + one.wants <= LIMIT else "refuse")

    def count(self, world: World, index: int) -> World:
        one = world.processes[index]
        return world.put(index, at="give" if self.counts_first else "hold", slot=one.slot + one.wants)

    def give(self, world: World, index: int) -> World:
        return world.put(index, lock=_given(world, index), at="take" if self.counts_first else "count")

    def take(self, world: World, index: int) -> World:
        one = world.processes[index]
        return world.put(index, at="hold" if self.counts_first else "give", has=one.has + one.wants)

    def refuse(self, world: World, index: int) -> World:
        again = "end" if world.processes[index].tried else "reap"
        return world.put(index, lock=_given(world, index), at=again, tried=1)

    def reap(self, world: World, index: int) -> World:
        for number, other in enumerate(world.processes):
            if not other.alive:
                world = world.put(number, taken=False)
        return world.put(index, at="lock")

    def hold(self, world: World, index: int) -> World:
        return world.put(index, at="forget", has=0)

    def forget(self, world: World, index: int) -> World:
        return world.put(index, at="end", slot=0)

    def step(self, world: World, index: int) -> World | None:
        """Return the world after a process's next step; None where it waits, or is at its end."""
        at = world.processes[index].at
        after: World | None = None if at == "end" else getattr(self, at)(world, index)
        return after


def _given(world: World, index: int) -> int:
    return NOBODY if world.lock == index else world.lock


def _next(world: World, rules: Rules) -> Iterator[World]:
    for index, one in enumerate(world.processes):
        if not one.alive:
            continue
        after = rules.step(world, index)
        if after is not None:
            yield after
        if world.kills:
            yield replace(world.put(index, alive=False, has=0), kills=world.kills - 1)


def _walk(wants: tuple[int, ...], kills: int, rules: Rules) -> Iterator[World]:
    begin = World(NOBODY, tuple(Process("lock", one) for one in wants), kills)
    return walk(begin, lambda world: _next(world, rules))


def _over(world: World) -> bool:
    return sum(one.has for one in world.processes) > LIMIT


def _alone(world: World, index: int) -> World:
    """Let one process go on alone until it has something, waits, or is at its end."""
    while world.processes[index].at != "hold":
        after = Rules().step(world, index)
        if after is None:
            break
        world = after
    return world


@pytest.mark.parametrize(("wants", "kills"), [((1, 1, 1), 1), ((2, 1, 1), 1), ((2, 2), 2), ((1, 2, 2), 0)])
def test_in_no_order_the_limit_is_passed_and_nothing_is_kept_for_the_dead(wants: tuple[int, ...], kills: int) -> None:
    found = set(_walk(wants, kills, Rules()))
    assert not any(map(_over, found))
    for world in found:
        living = [index for index, one in enumerate(world.processes) if one.alive]
        waiting = [index for index in living if world.processes[index].at != "end"]
        assert not waiting or any(Rules().step(world, index) for index in waiting), world
        for index in living if len(living) == 1 else []:
            one = world.processes[index]
            if one.at == "lock" and not one.tried:
                assert _alone(world, index).processes[index].has == one.wants, world


@pytest.mark.parametrize("rules", [Rules(locks=False), Rules(counts_first=False)])
def test_the_model_sees_a_race_and_what_is_taken_before_it_counts(rules: Rules) -> None:
    assert any(map(_over, _walk((1, 1, 1), 1, rules)))
