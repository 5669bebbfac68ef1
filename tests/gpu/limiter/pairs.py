"""Two containers that compete for the card, with the plugin's control of shares beside them.

The control is the plugin's own code (tests/native/controlchild.py): by itself no container can know which part of what
it measures were the other's turns. Both containers begin at once, and what they get counts from the moment at which
the control has found what is each one's own.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu.limiter.bench import ROOT, Bench
from gpu.limiter.card import NvmlError
from gpu.limiter.kernels import POINTS, QUEUED, SIZES_US, Kernel, judge_seconds, measure_kernels, points_off
from gpu.limiter.program import Program, ProgramError

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = ((30, 60), (50, 50), (70, 30))
LONG = 2
"""Kernels of 50 ms are measured for so many times as long: a window has some hundred of them."""
FREE = 100
IN_FLIGHT_S = 0.02
"""What a stream may have in flight while containers compete (plugin/limiter/README.md)."""
CONTROL = ROOT / "tests/native/controlchild.py"
PACKAGES = ("tests", "base", "simulation", "plugin")


@dataclass(frozen=True, slots=True)
class Cell:
    """Two shares, microseconds of a kernel, how many are queued."""

    pair: tuple[int, int]
    us: int
    depth: int


DEFAULT = (
    *(Cell(pair, 1000, QUEUED) for pair in PAIRS),
    *(Cell((30, 60), 100, QUEUED), Cell((30, 60), 1000, 1), Cell((30, 60), 50_000, 1), Cell((70, 30), 100, QUEUED)),
)
WHOLE = tuple(Cell(pair, us, depth) for pair, us, depth in itertools.product(PAIRS, SIZES_US, (1, QUEUED)))


def measure(bench: Bench) -> None:
    """Measure the chosen pairs, or all of them."""
    kernels = measure_kernels(bench)
    for cell in WHOLE if bench.options.whole else DEFAULT:
        kernel = kernels[cell.us]
        name = f"{cell.pair[0]} + {cell.pair[1]} %, {kernel.describe(cell.depth)}"
        seconds = bench.options.window_s * (LONG if cell.us == SIZES_US[-1] else 1)
        if not bench.has_time(name, _need_s(bench, seconds)):
            continue
        with bench.attempt(name):
            if not _cell(bench, name, cell, kernel, seconds=seconds):
                return


def _cell(bench: Bench, name: str, cell: Cell, kernel: Kernel, *, seconds: float) -> bool:
    """Measure a pair; return False where pairs cannot be judged on this machine."""
    found = _run(bench, cell, kernel, seconds=seconds, cores=cell.pair)
    if found is None:
        return False
    got = [_share(one, kernel) for one in found]
    able = [float(FREE)] * 2
    for at, core in enumerate(cell.pair):
        short = got[at] < core - POINTS
        if short and bench.has_time(f"{name}: {core} %, without a limit", _need_s(bench, seconds)):
            free = _run(bench, cell, kernel, seconds=seconds, cores=_freed(cell.pair, at))
            able[at] = _share(free[at], kernel) if free is not None else able[at]
    for core, share, could, one in zip(cell.pair, got, able, found, strict=True):
        why = f"got {share:.1f} %" + (f", without a limit {could:.1f} %" if could < FREE else "")
        bench.note(f"{name}: {core} %", points_off(share, core, could), "points off", most=POINTS, why=why)
        if could >= core:
            seconds_name, deep = f"{name}: {core} %, each second", IN_FLIGHT_S if cell.depth > 1 else 0
            judge_seconds(bench, seconds_name, one["each_second"], kernel, wanted=core, in_flight_s=deep)
    return True


def _need_s(bench: Bench, seconds: float) -> float:
    """Return what one run takes."""
    return bench.options.settle_s + seconds + 5


def _freed(pair: tuple[int, int], at: int) -> tuple[int, int]:
    """Return the pair with one that nothing holds: who waits for its kernels is kept waiting by the other one too."""
    return (FREE, pair[1]) if at == 0 else (pair[0], FREE)


def _share(one: dict[str, Any], kernel: Kernel) -> float:
    lasted = one["last"] - one["first"]
    return 100 * kernel.seconds * (one["count"] - 1) / lasted if lasted > 0 else 0.0


def _run(
    bench: Bench, cell: Cell, kernel: Kernel, *, seconds: float, cores: tuple[int, int]
) -> list[dict[str, Any]] | None:
    """Run both at once; None, with the reason kept, where the control cannot see them."""
    folders = [
        bench.container(f"pair-{at}", memory_mib=max(1024, 2 * bench.context_mib), words=_words(core))
        for at, core in enumerate(cores)
    ]
    words = ("timed", *kernel.words, cell.depth, bench.options.settle_s, seconds)
    running = [bench.start("work.py", *words, env=bench.limited(folder)) for folder in folders]
    for one in running:
        bench.answer(one)
    if not _listed(bench, {one.pid for one in running}):
        return None
    control = _start_control(bench, dict(zip(folders, cores, strict=True)))
    if control is None:
        return None
    for one in running:
        one.say("go")
    found = [bench.answer(one, 2 * _need_s(bench, seconds) + 60) for one in running]
    control.kill()
    bench.end(*running)
    return found


def _listed(bench: Bench, pids: set[int]) -> bool:
    """Return whether NVML lists processes by the pids that the control looks for; where not, the reason is kept."""
    try:
        listed = set(bench.card.processes())
    except NvmlError as error:
        bench.skip("pairs", f"the plugin's control has no list of processes: {error}")
        return False
    if not pids <= listed:
        bench.skip("pairs", "NVML here lists processes by pids of another namespace, so the control cannot know whose")
        return False
    return True


def _words(core: int) -> str:
    return f"core_percent={core} policy=strict"


def _start_control(bench: Bench, cores: dict[Path, int]) -> Program | None:
    """Start the plugin's control for the containers that have less than the whole card."""
    held = [f"{folder}={core}" for folder, core in cores.items() if core < FREE]
    paths = [*(str(ROOT / one) for one in PACKAGES), os.environ.get("PYTHONPATH", "")]
    env = {**bench.native(), "PYTHONPATH": ":".join(filter(None, paths))}
    control = bench.start_command([sys.executable, str(CONTROL), "/", bench.card.uuid, "strict", *held], env=env)
    try:
        control.line(bench.wait_s(30))
    except ProgramError as error:
        bench.skip("pairs", f"the plugin's control does not start with {sys.executable}: {error}")
        return None
    return control
