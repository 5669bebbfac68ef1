"""The checker's own arithmetic: what a request means, what a pod holds of each card, whether a pod would fit.

Written from docs/resources.md, without the product's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from churn.records import APP, INIT, ContainerRecord

WHOLE = 100
"""Core of a whole card."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Units of memory and hundredths of a card."""

    memory: int
    core: int


Room = Mapping[str, Amounts]
"""By card."""


def possible(containers: Sequence[ContainerRecord], totals: Room) -> bool:
    """Return whether the empty node could run a pod."""
    return all(_means_something(one) for one in containers) and fits(containers, totals, totals)


def _means_something(one: ContainerRecord) -> bool:
    if one.core >= WHOLE:
        return one.core % WHOLE == 0
    return one.memory > 0 and one.core > 0


def cards_wanted(one: ContainerRecord) -> int:
    """Return on how many cards a container lies."""
    return max(1, one.core // WHOLE)


def asked(containers: Sequence[ContainerRecord]) -> Amounts:
    """Return what a pod counts for in the node's sum, as Kubernetes adds containers up."""
    memory = core = peak_memory = peak_core = 0
    for one in containers:
        peak_memory, peak_core = max(peak_memory, memory + one.memory), max(peak_core, core + one.core)
        if one.kind != INIT:
            memory, core = memory + one.memory, core + one.core
    return Amounts(max(memory, peak_memory), max(core, peak_core))


def fits(containers: Sequence[ContainerRecord], free: Room, totals: Room) -> bool:
    """Return whether a pod fits on what is free: all containers, or all on one set of cards behind a GPU init one."""
    if any(one.kind == INIT for one in containers):
        need = _joint(containers)
        return need is not None and next(_places(need, free, totals), None) is not None
    return _fits_each(list(containers), dict(free), totals)


def _joint(containers: Sequence[ContainerRecord]) -> ContainerRecord | None:
    """Return a pod with a GPU init container as one container; None where its cards would be left to chance.

    kubelet hands the devices of an init container to the containers after it; what these take stays taken.
    """
    several = any(one.core > WHOLE for one in containers)
    stay = [one for one in containers if one.kind != INIT]
    if several and (len(stay) > 1 or len({(one.memory, one.core) for one in containers}) > 1):
        return None
    need, spare = {"memory": 0, "core": 0}, {"memory": 0, "core": 0}
    for one in containers:
        for what, amount in (("memory", one.memory), ("core", one.core)):
            again = min(spare[what], amount)
            need[what] += amount - again
            spare[what] += amount - again if one.kind == INIT else -again
    if need["core"] > WHOLE and not several:
        return None
    whole = any(one.core >= WHOLE for one in containers)
    return ContainerRecord("", need["memory"], max(need["core"], WHOLE) if whole else need["core"], APP)


def _fits_each(rest: list[ContainerRecord], free: dict[str, Amounts], totals: Room) -> bool:
    if not rest:
        return True
    return any(_fits_each(rest[1:], left, totals) for left in _places(rest[0], free, totals))


def _places(one: ContainerRecord, free: Room, totals: Room) -> Iterator[dict[str, Amounts]]:
    """Yield what would be left free, for each way to place a container."""
    if one.core < WHOLE:
        for card, have in free.items():
            if have.memory >= one.memory and have.core >= one.core:
                yield {**free, card: Amounts(have.memory - one.memory, have.core - one.core)}
        return
    count = one.core // WHOLE
    empty = [card for card, have in free.items() if have == totals[card]]
    least, more = divmod(one.memory, count)
    for cards in combinations(empty, count):
        sizes = sorted(totals[card].memory for card in cards)
        if sizes[0] >= least and sum(size > least for size in sizes) >= more:
            yield {**free, **dict.fromkeys(cards, Amounts(0, 0))}
