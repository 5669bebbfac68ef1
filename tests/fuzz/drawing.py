"""Draws lies by hypothesis outside of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.lies import WAYS, Lie, lies, lies_upward
from hypothesis import HealthCheck, Phase, given, seed, settings

if TYPE_CHECKING:
    from fuzz.material import Material


def drawn(have: Material, *, messages: int, number: int) -> tuple[list[Lie], list[Lie]]:
    """Let hypothesis draw so many lies to a box, and a few to its controller; `number` is the seed."""
    down: list[Lie] = []
    up: list[Lie] = []

    @settings(
        max_examples=messages // len(WAYS) + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(lies(have), lies_upward(have))
    def draw(one: tuple[Lie, ...], other: tuple[Lie, ...]) -> None:
        down.extend(one)
        up.extend(other[: len(one) // 4])

    rounds = 0
    while len(down) < messages:
        seed(number + rounds)(draw)()
        rounds += 1
    return down[:messages], up
