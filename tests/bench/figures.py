"""What a measurement comes to: median and p99 against a limit that an issue or a document names."""

from collections.abc import Sequence
from typing import TypedDict


class Figure(TypedDict):
    """One row of build/bench/*.json."""

    name: str
    unit: str
    median: float
    p99: float
    limit: float
    runs: int
    judged: bool
    """Whether a figure over its limit is a fault; others show how something grows."""
    slowness: float
    """By how much the machine was slower than one that keeps the limits; 1 where the limit counts as it is."""


def figure(name: str, values: Sequence[float], *, unit: str, limit: float, share: float = 0.99) -> Figure:
    """Return the row of some measured values; p99 of a single value is that value.

    Args:
        name: what was measured; it says so where the limit is meant for another percentile.
        values: in `unit`.
        unit: of all of them.
        limit: what p99 is compared with.
        share: of the values that p99 is no less than; 0.95 puts a p95 in its place.
    """
    ordered = sorted(values)
    return {
        "name": name,
        "unit": unit,
        "median": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3),
        "limit": limit,
        "runs": len(ordered),
        "judged": True,
        "slowness": 1.0,
    }
