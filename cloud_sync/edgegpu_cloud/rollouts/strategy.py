"""How a rollout goes on: the sizes of its waves, its gate, what is done about failures and offline boxes; pure."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase
from edgegpu_sync.faults import first_fault

MOST_WAVES = 1_000
"""Waves in one rollout: more would be no waves, and every step reads a count of each."""

_SIZE = re.compile(r"([0-9]{1,6})(%?)")
_DAY_S = 86_400
_ALL = 100
"""All boxes, in percent."""


class FailurePolicy(StrEnum):
    """What follows a gate that was failed."""

    RETURN = "return"
    STOP = "stop"
    PAUSE = "pause"


class OfflinePolicy(StrEnum):
    """What becomes of a box that is offline when its turn comes."""

    JOIN = "join"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class WaveSize:
    """The size of a wave: a number of boxes, or a share of all boxes in percent."""

    number: int
    percent: bool = False

    def boxes(self, total: int) -> int:
        """Return how many boxes that are, at least one; shares are rounded up."""
        return max(1, math.ceil(total * self.number / _ALL)) if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a wave has to reach before the next begins.

    `success_percent` of the boxes that ended must have applied the change, and at least `minimum` boxes (all of them
    in a smaller wave); then `soak_s` seconds pass, in which a box that loses the change counts as failed.
    """

    success_percent: int = 100
    minimum: int = 1
    soak_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStrategy:
    """How a rollout goes on.

    `canary` boxes are the first wave (0: none); the last of `sizes` repeats until all boxes have a wave.
    `max_unavailable` boxes at most are being changed at one time (0: a whole wave). A box that has not ended within
    `timeout_s` has failed; it is tried `retries` times more, each `retry_after_s` later. An offline box joins until
    `join_within_s` after the start.
    """

    canary: int = 1
    sizes: tuple[WaveSize, ...] = (WaveSize(25, percent=True),)
    gate: Gate = field(default_factory=Gate)
    max_unavailable: int = 0
    timeout_s: int = 900
    retries: int = 0
    retry_after_s: int = 60
    offline: OfflinePolicy = OfflinePolicy.JOIN
    join_within_s: int = 7 * _DAY_S
    on_failure: FailurePolicy = FailurePolicy.RETURN


_STRATEGY = TypeAdapter(RolloutStrategy)


def strategy_json(strategy: RolloutStrategy) -> dict[str, Any]:
    """Return a strategy as it is stored."""
    found: dict[str, Any] = to_jsonable_python(strategy)
    return found


def read_strategy(value: object) -> RolloutStrategy:
    """Read a stored strategy.

    Raises:
        CloudError: it is none.
    """
    try:
        return _STRATEGY.validate_json(json.dumps(value))
    except ValidationError as error:
        raise CloudError(
            phrase("cannot read the strategy of a rollout: %(fault)s", fault=first_fault(error)),
            remedy=phrase("restore the store"),
        ) from error


def read_sizes(text: str) -> tuple[WaveSize, ...]:
    """Read the sizes of waves: `5`, `25%`, `1,10%,50%`.

    Raises:
        CloudError: a word is no size.
    """
    return tuple(_size(word.strip(), text) for word in text.split(","))


def _size(word: str, whole: str) -> WaveSize:
    found = _SIZE.fullmatch(word)
    size = WaveSize(int(found[1]), percent=bool(found[2])) if found else WaveSize(0)
    if size.number < 1 or (size.percent and size.number > _ALL):
        text = phrase(
            "cannot plan waves of %(whole)r: %(word)r is no size of a wave", whole=whole, word=word or "nothing"
        )
        raise CloudError(text, remedy=phrase("give numbers of boxes or shares of all: 5, or 10%, or 1,10%,50%"))
    return size


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """What a number of a strategy is called, and the least and the most that it may be."""

    words: str
    least: int
    most: int


BOUNDS: Mapping[str, NumberBounds] = {
    "canary": NumberBounds(phrase("canary"), 0, 10_000),
    "success_percent": NumberBounds(phrase("success share in percent"), 1, _ALL),
    "minimum": NumberBounds(phrase("minimum count"), 0, 100_000),
    "soak_s": NumberBounds(phrase("soak time"), 0, 30 * _DAY_S),
    "max_unavailable": NumberBounds(phrase("number of boxes at one time"), 0, 100_000),
    "timeout_s": NumberBounds(phrase("time of one box"), 1, 7 * _DAY_S),
    "retries": NumberBounds(phrase("number of retries"), 0, 20),
    "retry_after_s": NumberBounds(phrase("time between tries"), 1, _DAY_S),
    "join_within_s": NumberBounds(phrase("time to join"), 1, 90 * _DAY_S),
}
"""The bounds of each number of a strategy and of its gate, by its field."""


def check_strategy(strategy: RolloutStrategy) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        CloudError: one is out of its bounds.
    """
    for name, bounds in BOUNDS.items():
        value = getattr(strategy.gate if hasattr(strategy.gate, name) else strategy, name)
        if not bounds.least <= value <= bounds.most:
            raise CloudError(
                phrase("cannot start a rollout: the %(number)s is %(value)s", number=bounds.words, value=value),
                remedy=phrase("give %(least)s to %(most)s", least=bounds.least, most=bounds.most),
            )
    for size in strategy.sizes:
        _size(str(size), str(size))
    if not strategy.sizes:
        raise CloudError(
            phrase("cannot start a rollout: it has no size of a wave"), remedy=phrase("give 25%, or 1,10%,50%")
        )


def wave_sizes(total: int, strategy: RolloutStrategy) -> list[int]:
    """Return how many boxes each wave has, in order; their sum is `total`.

    Raises:
        CloudError: there would be more than `MOST_WAVES`.
    """
    found: list[int] = []
    left = total
    if strategy.canary and left:
        found.append(min(strategy.canary, left))
        left -= found[0]
    sizes = list(strategy.sizes)
    while left:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        found.append(min(size.boxes(total), left))
        left -= found[-1]
        if len(found) > MOST_WAVES:
            text = phrase(
                "cannot plan %(total)s boxes: there would be more than %(most_waves)s waves",
                total=total,
                most_waves=MOST_WAVES,
            )
            raise CloudError(text, remedy=phrase("give larger waves"))
    return found
