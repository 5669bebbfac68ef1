"""When a figure passes its limit: the best of three runs decides, and what was within it is not measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bench.figures import Figure, figure
from bench.judging import best_of, is_over, line, recovery

if TYPE_CHECKING:
    from collections.abc import Callable


def runs_of(*values: float) -> tuple[Callable[[], list[Figure]], list[float]]:
    """A part whose one figure comes out as these, run after run; what is left of them."""
    left = list(values)
    return lambda: [figure("a", [left.pop(0)], unit="ms", limit=10), figure("b", [1.0], unit="ms", limit=10)], left


@pytest.mark.parametrize(
    ("values", "slack", "seen", "over"),
    [
        ((9.0, 1.0), 1, [9.0], False),
        ((11.0, 9.0, 1.0), 1, [11.0, 9.0], False),
        ((13.0, 11.0, 12.0, 1.0), 1, [13.0, 11.0, 12.0], True),
        ((19.0, 1.0), 2, [19.0], False),
        ((21.0, 22.0, 23.0, 1.0), 2, [21.0, 22.0, 23.0], True),
    ],
)
def test_the_best_of_three_decides(values: tuple[float, ...], slack: float, seen: list[float], *, over: bool) -> None:
    part, left = runs_of(*values)
    rows, runs = best_of(part, slack=slack)
    assert runs == {"a": seen, "b": [1.0] * len(seen)}
    assert len(left) == len(values) - len(seen)
    assert [row["p99"] for row in rows] == [min(seen), 1.0]
    assert [is_over(row, slack=slack) for row in rows] == [over, False]
    assert ("OVER" in line(rows[0], seen, slack=slack)) is over
    assert all(f"{value:.3f}" in line(rows[0], seen, slack=slack) for value in seen)


WAITED: dict[str, Any] = {"name": "w_s", "unit": "s", "median": 3.0, "p95": 9.0, "max": 20.0, "limit": 15.0, "runs": 40}


@pytest.mark.parametrize(
    ("more", "slack", "over"),
    [
        ({}, 1, False),
        ({"p95": 15.5}, 1, True),
        ({"p95": 15.5}, 2, False),
        ({"p95": 15.5, "runs": 39}, 1, False),  # too few say nothing
        ({"most": 30.0}, 1, False),
        ({"most": 30.0, "max": 30.5}, 1, True),
        ({"most": 30.0, "max": 61.0}, 2, True),
    ],
)
def test_a_recovery_time_is_judged_over_many_samples(more: dict[str, Any], slack: float, *, over: bool) -> None:
    told, found = recovery(WAITED | more, slack=slack)
    assert found is over
    assert ("not judged" in told) is (more.get("runs") == 39)
