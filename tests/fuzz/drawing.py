"""Draws lies by hypothesis outside of a test."""

from __future__ import annotations

import random
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING

from fuzz.lies import UPWARD, WAYS, Lie, Way
from hypothesis import HealthCheck, Phase, given, seed, settings

if TYPE_CHECKING:
    from fuzz.material import Material

_FRESH = 10
"""So many examples hypothesis draws before it makes most of the next by changing one of those in one place."""

_ROUNDS = 3
"""A way of which so many rounds bring nothing new has said what it can, and says it again."""


def drawn(have: Material, *, messages: int, number: int) -> tuple[list[Lie], list[Lie]]:
    """Let hypothesis draw so many lies to a box, and a quarter for its controller; `number` is the seed."""
    return _mixed(WAYS, have, messages, number), _mixed(UPWARD, have.mirrored(), messages // 4, number)


def _mixed(ways: tuple[Way, ...], have: Material, messages: int, number: int) -> list[Lie]:
    """Draw as many of each way, and put them in turn."""
    each = [_different(way, have, -(-messages // len(ways)), number) for way in ways]
    return list(chain.from_iterable(zip(*each, strict=True)))[:messages]


def _different(way: Way, have: Material, count: int, number: int) -> list[Lie]:
    """Draw lies of one way, no two alike while there are others, none made from another one."""
    found: dict[tuple[str, bytes], Lie] = {}
    seeds, barren = random.Random(number), 0
    while len(found) < count and barren < _ROUNDS:
        before = len(found)
        found |= {(lie.topic, lie.payload): lie for lie in _some(way, have, seeds.getrandbits(64))}
        barren = 0 if len(found) > before else barren + 1
    return list(islice(cycle(found.values()), count))


def _some(way: Way, have: Material, number: int) -> list[Lie]:
    lies: list[Lie] = []

    @settings(
        max_examples=_FRESH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(way(have))
    def draw(lie: Lie) -> None:
        lies.append(lie)

    seed(number)(draw)()
    return lies
