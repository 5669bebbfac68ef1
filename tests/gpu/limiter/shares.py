"""Shares of the card's time: work of a known length in one container, by how long it takes there.

The length is the kernels' time on the card by events, times their number. The time of the same program without a
limit would be no measure of it: where each kernel is waited for, the host's own gaps are in that, and the share would
be read as too large by as much as they are long (6 to 14 points with kernels of 0.1 ms). A share saves up 50 ms of the
card while nothing runs, so that is used up before the clock starts.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu.limiter.bench import Bench
from gpu.limiter.kernels import POINTS, QUEUED, SIZES_US, Kernel, judge_seconds, measure_kernels, points_off

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARES = (70, 50, 30, 10)
SPEND_S = 0.2
"""Work that leaves a debt of 86 ms at 70 %: until the next launch nothing is saved up again."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One share: percent, microseconds of a kernel, how many are queued, by how many processes."""

    share: int
    us: int
    depth: int
    processes: int = 1


DEFAULT = (
    *(Cell(50, 1000, 1), Cell(70, 100, QUEUED), Cell(50, 100, 1), Cell(30, 1000, QUEUED), Cell(70, 50_000, QUEUED)),
    *(Cell(50, 1000, QUEUED, 3), Cell(30, 100, 1, 3), Cell(50, 50_000, 1), Cell(70, 1000, 1), Cell(10, 100, QUEUED)),
)
WHOLE = tuple(
    Cell(share, us, depth, processes)
    for share, us, depth, processes in itertools.product(SHARES, SIZES_US, (1, QUEUED), (1, 3))
)


def measure(bench: Bench) -> None:
    """Measure the chosen shares, or all of them."""
    _cells(bench, WHOLE if bench.options.whole else DEFAULT)


def _cells(bench: Bench, cells: Iterable[Cell]) -> None:
    kernels = measure_kernels(bench)
    for cell in cells:
        by = "one process" if cell.processes == 1 else f"{cell.processes} processes"
        name = f"share of {cell.share} %, {kernels[cell.us].describe(cell.depth)}, {by}"
        expected_s = (bench.options.work_s + SPEND_S) * 100 / cell.share
        if not bench.has_time(name, expected_s + 4):
            continue
        with bench.attempt(name):
            _cell(bench, name, cell, kernels[cell.us], most_s=3 * expected_s + 30)


def _cell(bench: Bench, name: str, cell: Cell, kernel: Kernel, *, most_s: float) -> None:
    count = max(1, math.ceil(bench.options.work_s / kernel.seconds / cell.processes))
    spend = max(1, math.ceil(SPEND_S / kernel.seconds / cell.processes))
    folder = bench.container(
        f"share-{cell.share}-{cell.us}-{cell.depth}-{cell.processes}",
        memory_mib=4 * max(1024, bench.context_mib),
        words=f"core_percent={cell.share} policy=strict",
    )
    words = ("fixed", *kernel.words, count, cell.depth, spend)
    running = [bench.start("work.py", *words, env=bench.limited(folder)) for _ in range(cell.processes)]
    for step in ("", "go", "go"):  # ready, then what was saved up is spent, then the work
        for one in running:
            if step:
                one.say(step)
        said = [bench.answer(one, most_s) for one in running]
    bench.end(*running)
    took_s = max(one["ended"] for one in said) - min(one["began"] for one in said)
    got = 100 * kernel.seconds * count * cell.processes / took_s
    able = kernel.alone[cell.depth]
    why = f"got {got:.1f} % over {took_s:.1f} s, without a limit {able:.1f} %"
    bench.note(name, points_off(got, cell.share, able), "points off", most=POINTS, why=why)
    if cell.processes == 1 and able >= cell.share:
        judge_seconds(bench, f"{name}, each second", said[0]["each_second"], kernel, wanted=cell.share)
