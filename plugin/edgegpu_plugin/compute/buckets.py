"""What the buckets of GPU time say: whether a container computes, and whether it is held back.

The container's processes write them (`plugin/limiter/common/bucket.c`), so a level is a hint: whatever it is, nothing
follows from it that the container is not entitled to.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_plugin.containers.usage_file import bucket_levels, uuid_digits

_UNIT_NS = 8
_SHARE_BITS = 7
_HELD_NS = 10_000_000
"""A bucket that came out of debt so shortly ago holds its container back: where it does not, it saves up."""

_LOOKS = 4
"""Looks for which a container counts as busy, or as held back, after it was seen so."""


@dataclass(eq=False, slots=True)
class BucketWatch:
    """The last looks at a container's bucket for one card."""

    _level: int | None = None
    _moved: deque[bool] = field(default_factory=lambda: deque(maxlen=_LOOKS))
    _held: deque[bool] = field(default_factory=lambda: deque(maxlen=_LOOKS))

    def look(self, level: int, now_ns: int) -> None:
        """Take the level as it is now; now: of CLOCK_MONOTONIC."""
        self._moved.append(self._level is not None and level != self._level)
        self._held.append(level != 0 and (level >> _SHARE_BITS) * _UNIT_NS > now_ns - _HELD_NS)
        self._level = level

    @property
    def is_full(self) -> bool:
        """Whether it has looked often enough to say that a container does not compute."""
        return len(self._moved) == _LOOKS

    @property
    def is_busy(self) -> bool:
        """Whether the container computes: it was charged lately."""
        return any(self._moved)

    @property
    def wants(self) -> bool:
        """Whether its bucket holds it back."""
        return self.is_busy and any(self._held)


def read_level(usage: Iterable[Path], card: str) -> int:
    """Return the level of a container's bucket for a card; 0 where it was never used."""
    digits = uuid_digits(card)
    return max((bucket_levels(path).get(digits, 0) for path in usage), default=0)
