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
    return all(_means_something(request) for request in containers) and fits(containers, totals, totals)


def _means_something(request: ContainerRecord) -> bool:
    if request.core >= WHOLE:
        return request.core % WHOLE == 0
    return request.memory > 0 and request.core > 0


def cards_wanted(request: ContainerRecord) -> int:
    """Return on how many cards a container lies."""
    return max(1, request.core // WHOLE)


def asked(containers: Sequence[ContainerRecord]) -> Amounts:
    """Return what a pod counts for in the node's sum, as Kubernetes adds containers up."""
    memory = core = peak_memory = peak_core = 0
    for request in containers:
        peak_memory, peak_core = max(peak_memory, memory + request.memory), max(peak_core, core + request.core)
        if request.kind != INIT:
            memory, core = memory + request.memory, core + request.core
    return Amounts(max(memory, peak_memory), max(core, peak_core))


def fits(containers: Sequence[ContainerRecord], free: Room, totals: Room) -> bool:
    """Return whether a pod fits on what is free: all containers, or all on the cards of a GPU init container."""
    if any(request.kind == INIT for request in containers):
        need = _joint(containers)
        return need is not None and next(_places(need, free, totals), None) is not None
    return _fits_each(list(containers), dict(free), totals)


def _joint(containers: Sequence[ContainerRecord]) -> ContainerRecord | None:
    """Return a pod with a GPU init container as one container; None where its cards would be left to chance.

    kubelet hands the devices of an init container to the containers after it; what these take stays taken.
    """
    several = any(request.core > WHOLE for request in containers)
    stay = [request for request in containers if request.kind != INIT]
    if several and (len(stay) > 1 or len({(request.memory, request.core) for request in containers}) > 1):
        return None
    need, spare = {"memory": 0, "core": 0}, {"memory": 0, "core": 0}
    for request in containers:
        for what, amount in (("memory", request.memory), ("core", request.core)):
            again = min(spare[what], amount)
            need[what] += amount - again
            spare[what] += amount - again if request.kind == INIT else -again
    if need["core"] > WHOLE and not several:
        return None
    whole = any(request.core >= WHOLE for request in containers)
    return ContainerRecord("", need["memory"], max(need["core"], WHOLE) if whole else need["core"], APP)


def _fits_each(rest: list[ContainerRecord], free: dict[str, Amounts], totals: Room) -> bool:
    if not rest:
        return True
    return any(_fits_each(rest[1:], left, totals) for left in _places(rest[0], free, totals))


def _places(request: ContainerRecord, free: Room, totals: Room) -> Iterator[dict[str, Amounts]]:
    """Yield what would be left free, for each way to place a container."""
    if request.core < WHOLE:
        for card, have in free.items():
            if have.memory >= request.memory and have.core >= request.core:
                yield {**free, card: Amounts(have.memory - request.memory, have.core - request.core)}
        return
    count = request.core // WHOLE
    empty = [card for card, have in free.items() if have == totals[card]]
    least, more = divmod(request.memory, count)
    for cards in combinations(empty, count):
        sizes = sorted(totals[card].memory for card in cards)
        if sizes[0] >= least and sum(size > least for size in sizes) >= more:
            yield {**free, **dict.fromkeys(cards, Amounts(0, 0))}
