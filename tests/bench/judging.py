"""Whether figures keep their limits: the best of three runs decides, only what was over runs again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bench.figures import Figure

RUNS = 3
TIMES = frozenset({"ns", "us", "ms", "s", "%"})
"""Units of what takes longer on a slower machine; % is of a core's time."""
PROMISED = "pending_to_running_s"
"""The recovery time that is promised; what else the end-to-end tests report is of a few samples, and only said."""

ENOUGH = 40
"""Samples of a recovery time without which its p95 says nothing."""


def best_of(
    measure: Callable[[], Sequence[Figure]], *, slack: float, again: Callable[[], Sequence[Figure]] | None = None
) -> tuple[list[Figure], dict[str, list[float]]]:
    """Measure until every figure was within its limit once, three times at most.

    Args:
        measure: all figures of one part.
        slack: by how much a limit may be passed: 1 for none.
        again: what is measured from the second time on, where not all figures are judged.

    Returns:
        The best row of each figure, and the p99 of all of its runs, by name.
    """
    best: dict[str, Figure] = {}
    runs: dict[str, list[float]] = {}
    for number in range(RUNS):
        for row in (again or measure)() if number else measure():
            runs.setdefault(row["name"], []).append(row["p99"])
            if row["name"] not in best or _by_machine(row) < _by_machine(best[row["name"]]):
                best[row["name"]] = row
        if not any(is_over(row, slack=slack) for row in best.values()):
            break
    return list(best.values()), runs


def on_a_slow_machine(measure: Callable[[], Sequence[Figure]], slowness: Callable[[], float]) -> list[Figure]:
    """Measure, and note with each time how slow the machine was before it or after it, whichever is more."""
    before = slowness()
    rows = measure()
    most = max(before, slowness())
    return [{**row, "slowness": most if row["unit"] in TIMES else 1.0} for row in rows]


def is_over(row: Figure, *, slack: float) -> bool:
    """Say whether a figure that is judged passes its limit."""
    return row["judged"] and _by_machine(row) > row["limit"] * slack


def _by_machine(row: Figure) -> float:
    return row["p99"] / row["slowness"]


def line(row: Figure, runs: Sequence[float], *, slack: float) -> str:
    """Return a figure as it is printed, with all of its runs."""
    told = f"limit {row['limit']:g}" + (f", {slack:g} times that here" if slack != 1 else "")
    told += f", on a machine {row['slowness']:.1f} times as slow" if row["slowness"] > 1 else ""
    all_of_them = ", ".join(f"{value:.3f}" for value in runs)
    more = f"; p99 of each run {all_of_them}" if len(runs) > 1 else ""
    verdict = ("OVER" if is_over(row, slack=slack) else "within") if row["judged"] else "not judged"
    return (
        f"{row['name']:40} median {row['median']:9.3f} p99 {row['p99']:9.3f} {row['unit']:4}"
        f" {told}: {verdict} ({row['runs']} samples{more})"
    )


def recovery(row: Mapping[str, Any], *, slack: float) -> tuple[str, bool]:
    """Return a recovery time of the end-to-end tests as it is printed, and whether it passes its limits.

    Those tests assert no time. Where there are enough samples p95 is compared with `limit`, and the longest with
    `most`. Of fewer it is only said what was seen, but where there is a `typical`: with it the median is compared, and
    the longest with `most`.
    """
    most, typical, limit = row.get("most"), row.get("typical"), row["limit"]
    many = row["runs"] >= ENOUGH
    judged = many or typical is not None
    over = many and row["p95"] > limit * slack
    over |= typical is not None and row["median"] > typical * slack
    over |= judged and most is not None and row["max"] > most * slack
    verdict = ("OVER" if over else "within") if judged else f"not judged, {ENOUGH} samples are needed"
    limits = f"limit {limit:g}" + (f", {most:g} at most" if most is not None else "")
    limits += f", median {typical:g}" if typical is not None else ""
    told = f"{row['name']:40} median {row['median']:9.3f} p95 {row['p95']:9.3f} longest {row['max']:9.3f} {limits}"
    return f"{told}: {verdict} ({row['runs']} samples)", over


def unmeasured(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return why the promised recovery time is not judged, in words; empty where it is."""
    samples = sum(row["runs"] for row in rows if row["name"] == PROMISED)
    return "" if samples >= ENOUGH else f"{PROMISED}: {samples} samples, {ENOUGH} are needed"
