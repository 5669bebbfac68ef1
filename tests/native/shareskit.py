"""Shares of a simulated card's time: what a container may get of it, how that is judged, and the table of what it got.

What is measured is work on the simulated card against the time that went by (plugin/limiter/tests/compute.c). That a
machine has other work too costs a program time, and gives it none: so more than a share is a fault of the limiter at
once, and less than a share is measured again, in the end by `.ci/run` when the machine is quiet.
"""

import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kits.daily import of_the_day
from kits.reruns import StarvationError

WHOLE = 100
POINTS = 2.0
TRIES = 4
US, MS = 1_000, 1_000_000
KERNELS = (100 * US, MS, 50 * MS)
CORES = (70, 50, 30, 10)
DEPTHS = (1, 50)
PROCESSES = (1, 3)
PAIRS = ((30, 60), (50, 50), (70, 30))
CASES = list(itertools.product(CORES, KERNELS, DEPTHS, PROCESSES))
PAIR_CASES = list(itertools.product(KERNELS, DEPTHS, PAIRS))
PARTS = 7
"""In so many days CI measures the whole table. Prime to the table's own numbers: each day sees all kinds of kernels."""
T = TypeVar("T")
SAVED_S = 0.05
"""What a bucket saves up of a time without work (BUCKET_CREDIT_NS): had in the next second, on top of the share."""
AT_LOAD = 0.4
"""The part of a share that a program gets at least beside other tests."""
ALONE = bool(os.environ.get("TEST_FULL"))
"""The machine is the tests' alone."""

Measure = Callable[[], list[float]]
MeasureSeconds = Callable[[], list[list[float]]]
Note = Callable[[list[list[float]], list[float]], None]


@dataclass(frozen=True)
class Row:
    """What one cell of the table got, in each of its tries."""

    table: str
    cell: dict[str, Any]
    wanted: list[float]
    able: list[float]
    """What the same program got where nothing held it; 0: nobody asked."""
    got: list[list[float]]
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 2))


@dataclass(frozen=True)
class Table:
    """The cells that a run has measured, written as they come: a run that is ended keeps what it has."""

    path: Path
    rows: list[Row] = field(default_factory=list)

    def note(self, table: str, cell: dict[str, Any], wanted: Sequence[float]) -> Note:
        """Return what adds a cell to the table, once its tries have been measured."""
        return lambda got, able: self.add(Row(table, cell, [*wanted], able, got))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps([asdict(one) for one in self.rows], indent=1) + "\n")
        print(f"\n{row.table} {row.cell}: wanted {row.wanted}, got {row.got}, load {row.load}")  # noqa: T201


def cells_of_the_day(cells: Sequence[T]) -> list[T]:
    """Return a seventh of the cells, another one each day, or one of fewer than seven; with TEST_FULL=1 all of them."""
    return of_the_day(cells, min(PARTS, len(cells)))


def _nothing(_seen: list[list[float]], _able: list[float]) -> None:
    """Keep no note."""


def above(got: Sequence[float], wanted: Sequence[float]) -> bool:
    """Return whether some container got more than its share and POINTS."""
    return any(one > share + POINTS for one, share in zip(got, wanted, strict=True))


def reaches(measured: Iterable[float], least: float, most: float = WHOLE) -> None:
    """Hold a program to a range that it reaches in one of several measures.

    Raises:
        StarvationError: it had less than the range in a measure, and reached it in none.
    """
    seen = []
    for got in measured:
        if least <= got <= most:
            return
        seen.append(got)
    if min(seen) > most:
        pytest.fail(f"more than {most}: {seen}")
    raise StarvationError(f"from {least} to {most} in no measure: {seen}")


def above_in_a_second(seconds: Sequence[float], share: float) -> bool:
    """Return whether a second had more than the share and POINTS.

    What the second before it lacked comes on top, but for no more than a bucket saves up: a program that was kept
    waiting for 50 ms makes up for it, in whichever second that comes to lie.
    """
    lacked = 0.0
    for got in seconds:
        if got > share + lacked + POINTS:
            return True
        lacked = min(SAVED_S * share, max(0.0, share - got))
    return False


def judge(
    measure: Measure,
    wanted: Sequence[float],
    *,
    lack: float | None = POINTS if ALONE else None,
    least: float = AT_LOAD,
    apart: bool = False,
    free: Measure | None = None,
    is_above: Callable[[list[float]], bool] | None = None,
    note: Note = _nothing,
) -> None:
    """Hold what containers got to their shares: never above, in no try; below in the best of several.

    Args:
        measure: measures what each container, or each second, got.
        wanted: the share of each.
        lack: the points that each may lack; None: `least` is enough.
        least: the part of its share that each must have.
        apart: whether the best of each counts, and not the best try: a machine takes something from this second in one
            try and from that one in the next, the limiter from the same in all.
        free: measures what the same program gets where nothing holds it: who waits for each short kernel leaves the
            card idle, and no share makes it faster. Asked only where something lacks.
        is_above: whether something got too much, where it is not each by itself.
        note: is told what all tries got and what was got freely, 0 where nobody asked, also of what fails.
    """
    seen: list[list[float]] = []
    able = [0.0] * len(wanted)
    lowest: list[float] = []
    try:
        for _ in range(TRIES):
            seen.append(measure())
            if is_above(seen[-1]) if is_above is not None else above(seen[-1], wanted):
                pytest.fail(f"more than was given: wanted {wanted}, got {seen}")
            if free is not None and any(got < share - (lack or 0) for got, share in zip(seen[-1], wanted, strict=True)):
                able = [max(pair) for pair in zip(able, free(), strict=True)]
            most = [min(share, can or share) for share, can in zip(wanted, able, strict=True)]
            lowest = [share * least if lack is None else share - lack for share in most]
            best = [max(of_one) for of_one in zip(*seen, strict=True)] if apart else seen[-1]
            if all(low <= got for low, got in zip(lowest, best, strict=True)):
                return
    finally:
        note(seen, able)
    raise StarvationError(f"less than was given: wanted {wanted}, at least {lowest}, got {seen}")


def _error(seconds: Sequence[float], share: float) -> float:
    """Return by how many points a second is off its share on average."""
    return statistics.mean(abs(got - share) for got in seconds)


def judge_each_second(
    measure: MeasureSeconds,
    wanted: Sequence[float],
    *,
    free: Measure,
    one_by_one: bool,
    error: float | None = POINTS if ALONE else None,
) -> tuple[list[list[list[float]]], list[float]]:
    """Hold what containers got second by second to their shares: on average never more, in no try.

    What lacks on average is measured again, and so is a single second that has more, or an error that is too large.

    Args:
        measure: measures the seconds of each container.
        wanted: the share of each.
        free: measures what the same programs get where nothing holds them, where something lacks.
        one_by_one: whether seconds are judged, and not their average alone: where kernels are long, a second has few.
        error: the points that a second may be off on average; None: any.

    Returns:
        The seconds of all tries, and what was got freely, 0 where nobody asked.
    """
    seen: list[list[list[float]]] = []
    able = [0.0] * len(wanted)
    for _ in range(TRIES):
        seen.append(measure())
        means = [statistics.mean(seconds) for seconds in seen[-1]]
        if above(means, wanted):
            pytest.fail(f"more than was given: wanted {wanted}, got {seen}")
        if any(mean < share - POINTS for mean, share in zip(means, wanted, strict=True)):
            able = [max(pair) for pair in zip(able, free(), strict=True)]
        most = [min(share, can or share) for share, can in zip(wanted, able, strict=True)]
        if any(mean < share - POINTS for mean, share in zip(means, most, strict=True)):
            continue
        if one_by_one and any(map(above_in_a_second, seen[-1], wanted)):
            continue
        if one_by_one and error is not None and max(map(_error, seen[-1], most)) > error:
            continue
        return seen, able
    raise StarvationError(f"less than was given, or a second off: wanted {wanted}, free {able}, got {seen}")
