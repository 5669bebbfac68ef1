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


def figure(name: str, values: Sequence[float], *, unit: str, limit: float) -> Figure:
    """Return the row of some measured values; p99 of a single value is that value."""
    ordered = sorted(values)
    return {
        "name": name,
        "unit": unit,
        "median": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "limit": limit,
        "runs": len(ordered),
    }
