"""Limits that change while a program runs: it follows within a second, up and down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu.limiter.bench import LIMIT_MIB, Bench
from gpu.limiter.kernels import POINTS, measure_kernels, points_off

if TYPE_CHECKING:
    from gpu.limiter.program import Program

WITHIN_S = 1.0
PATIENCE_S = 5.0
ASK_EVERY_S = 0.05
CORES = (60, 20)
WINDOW_S = 1.0


def measure(bench: Bench) -> None:
    """Change a container's memory, then a container's share."""
    _memory(bench)
    bench.end_all()
    _share(bench)


def _memory(bench: Bench) -> None:
    small, large = bench.context_mib + LIMIT_MIB // 4, bench.context_mib + LIMIT_MIB
    bench.container("live", memory_mib=small)
    program = bench.start("hold.py", env=bench.limited(bench.folder / "live"))
    bench.answer(program)
    status = bench.ask(program, f"take {LIMIT_MIB // 2}")["status"]
    bench.note("live: more than the limit before the change", status == "SUCCESS", "given", most=0, why=status)
    bench.container("live", memory_mib=large)
    _until(bench, program, "SUCCESS", "live: memory is given after a limit went up")
    bench.container("live", memory_mib=small)
    _until(bench, program, "ERROR_OUT_OF_MEMORY", "live: memory is refused after a limit went down")
    bench.ask(program, "give")
    status = bench.ask(program, f"take {LIMIT_MIB // 8}")["status"]
    bench.note("live: below the lower limit", status != "SUCCESS", "refused", most=0, why=status)
    bench.end(program)


def _until(bench: Bench, program: Program, wanted: str, name: str) -> None:
    """Note the seconds from a change until a program is answered as it should be."""
    began, status = time.monotonic(), ""
    while status != wanted and time.monotonic() - began < PATIENCE_S:
        mib = LIMIT_MIB // 2 if wanted == "SUCCESS" else 1
        status = bench.ask(program, f"take {mib}")["status"]
        if status != wanted:
            time.sleep(ASK_EVERY_S)
    bench.note(name, time.monotonic() - began, "s", most=WITHIN_S, why=status)


def _share(bench: Bench) -> None:
    """A second after the change, three seconds at the new share; down, then up."""
    kernel = measure_kernels(bench)[1000]
    memory = max(LIMIT_MIB, 2 * bench.context_mib)
    words = [f"core_percent={core} policy=strict" for core in CORES]
    folder = bench.container("live-share", memory_mib=memory, words=words[0])
    program = bench.start("work.py", "follow", *kernel.words, 1, WINDOW_S, env=bench.limited(folder))
    bench.answer(program)
    program.say("go")
    for _ in range(2):
        bench.answer(program)
    for core in (CORES[1], CORES[0]):
        bench.answer(program)  # the windows are on the program's clock: change the limit where one begins
        bench.container("live-share", memory_mib=memory, words=f"core_percent={core} policy=strict")
        first, *rest = [bench.answer(program) for _ in range(4)]
        count = sum(one["count"] - 1 for one in rest)
        got = 100 * kernel.seconds * count / sum(one["last"] - one["first"] for one in rest)
        why = f"got {got:.1f} %, {first['count']} kernels in the second of the change"
        name = f"live: {core} % from the second after the change"
        bench.note(name, points_off(got, core, kernel.alone[1]), "points off", most=POINTS, why=why)
    program.kill()
