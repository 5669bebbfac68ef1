"""How much of what the limiter measures a container is charged for, by what it really had of the card. Pure.

The limiter measures a container's time between two events in its own streams. Where several containers compute on one
card, turns of the others lie between these events, and the container is charged for them. The driver counts each
process's time by itself, so what a container really had can be compared with what it was given, and the charge be put
right. Percent are of a card's time.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)

WHOLE_PERMILLE = 1000
LEAST_PERMILLE = 10
"""The limiter takes no less than that: core 1 of a card that is idle otherwise."""

_USABLE = 97.0
"""What is given away of a card that several want: between turns it stands still for moments."""

_FULL_EXTRA = 3.0
"""Points above its share that a container which lacks some of it is let to where all shares fill the card.

There nobody can make up for a moment in which it was held back although the card stood still. Who has its share is held
to it.
"""

_MARGIN = 5.0
"""What is kept free for a container that uses less than it is guaranteed, above what it uses."""

_LEAST_PART = 0.15
"""The least part of the charge that is left, however many containers take turns."""

_CERTAIN = 0.9
"""What is measured can contain others' turns and idle moments: by so much more than the others' turns alone."""

_NEAR, _GAIN, _FAR_GAIN = 0.15, 0.3, 0.6
"""A ratio that is nearer to 1 is answered gently: samples of long kernels swing by themselves."""

_MOST_STEP = 1.5
_LITTLE = 0.1
_RETURN = 0.03


@dataclass(frozen=True, slots=True)
class BusyContainer:
    """A container that computes on a card now."""

    core: int
    """The percent that it is guaranteed."""

    elastic: bool
    """Whether it may have more while others leave it."""

    used: float
    """The percent that it had, by the driver's count."""

    wants: bool
    """Whether its bucket holds it back."""

    mean: float = 0.0
    """The percent that it had over some ten seconds, by the driver's count."""

    known: bool = True
    """Whether it has computed for long enough that `used` says something."""

    on_its_way: float = 1.0
    """What it was charged while it had `used`, by what it is charged now: so many times that it comes to by itself."""


def targets(busy: Mapping[_Key, BusyContainer], others: float) -> dict[_Key, float]:
    """Return the percent of the card that each container is to have at most.

    A strict container's is its guarantee. Elastic ones share what nobody else needs, in proportion to their guarantees.
    What is guaranteed to a container is kept for it as long as it wants it; of one that wants less, what it uses and a
    margin.

    Args:
        busy: the containers with a compute limit that compute on the card now.
        others: the percent that processes without a compute limit have of it.
    """
    reserved = sum(
        one.core if one.wants or not one.known else min(one.core, one.used + _MARGIN) for one in busy.values()
    )
    usable = 100.0 if len(busy) == 1 and others == 0 else _USABLE
    spare = max(0.0, usable - reserved - (others + _MARGIN if others else 0))
    taking = {key: one for key, one in busy.items() if one.elastic and (one.wants or one.used + _MARGIN > one.core)}
    parts = sum(one.core for one in taking.values())
    return {
        key: min(100.0, one.core + spare * one.core / parts) if key in taking else float(one.core)
        for key, one in busy.items()
    }


def goals(busy: Mapping[_Key, BusyContainer], wanted: Mapping[_Key, float]) -> dict[_Key, float]:
    """Return the percent to which each container is let now, so that it comes to its target.

    Where all shares fill the card, who lacks some of its share is let to a little more than that. It lacks some only
    where it had less over some ten seconds too: who rests now and then cannot make up for it.

    Args:
        busy: as in `targets`.
        wanted: the targets.
    """
    is_full = sum(one.core for one in busy.values()) > _USABLE
    return {
        key: max(target, min(100.0, busy[key].core + _FULL_EXTRA)) if is_full and _lacks(busy[key]) else target
        for key, target in wanted.items()
    }


def _lacks(one: BusyContainer) -> bool:
    return one.known and one.wants and max(one.used, one.mean) < one.core


def next_part(part: float, one: BusyContainer, *, target: float, rest: float) -> float:
    """Return the part of the measured time that is the container's own, as it is believed from now on.

    It falls while the container wants its target and has less, and rises while it has more, has had more of late, or
    wants no more: who leaves its share for a while cannot make up for it beyond that. It never falls below what the
    turns of others can explain: what is measured beside the container's own time is theirs. That a container wants
    something is its own word, and nothing follows from it where the driver sees it compute next to nothing. What was
    changed already and is not seen yet is not changed once more; it turns no lack into too much, and no too much into a
    lack.

    Args:
        part: what was believed until now; 1 where all that is measured is its own.
        one: the container.
        target: the percent that it is to have.
        rest: the percent that all others on the card had.
    """
    had = max(one.used, one.mean) if one.mean > target else one.used
    if had <= target and (not one.wants or one.used < _LITTLE * target):
        return part + (1 - part) * _RETURN
    comes_to = one.used * one.on_its_way
    ratio = max(comes_to, one.mean, target) / target if had > target else min(comes_to, target) / target
    ratio = min(max(ratio, 1 / _MOST_STEP), _MOST_STEP)
    gain = _GAIN if abs(ratio - 1) < _NEAR else _FAR_GAIN
    least = max(_LEAST_PART, _CERTAIN * one.used / (one.used + rest) if one.used else 0)
    return min(1.0, max(part * math.pow(ratio, gain), least))


def permille(part: float, one: BusyContainer, *, target: float) -> int:
    """Return how much of the measured time is charged, so that the container comes to its target."""
    charged = WHOLE_PERMILLE * part * one.core / target
    return round(min(max(charged, LEAST_PERMILLE), WHOLE_PERMILLE))
