"""Ways to take memory past a limit: each until it is refused; judged by what NVML says that the card holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu.limiter.bench import LIMIT_MIB, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = (
    *("alloc", "small", "looked_up", "pitch", "managed", "asynchronous", "virtual", "unmapped", "array", "array3d"),
    *("mipmap", "contexts", "green", "graph", "any_node", "captured", "module", "library", "own_pool", "kept_pools"),
    *("heap", "printf", "stacks", "late_code"),
)
"""What programs/ways.py knows. late_code is no way to take more: code that is loaded when nothing is left."""
ASK_MIB, PIECE_MIB = 3072, 64
OUT_OF_MEMORY = "ERROR_OUT_OF_MEMORY"
TOLERANCE = 1.02
WAY_S = 6.0
"""What one way takes at most as a rule."""


def measure_context(bench: Bench) -> None:
    """Measure what a context takes on this card: each container's limits file says it, as the self-test's figure."""
    base = bench.card.used_mib()
    program = bench.start("ways.py", "alloc", ASK_MIB, env=bench.native())
    bench.answer(program)
    bench.context_mib = round(bench.card.used_mib() - base)
    bench.end(program)
    bench.card.settled_mib(base)
    bench.note("a context", bench.context_mib, "MiB")


def one_process(bench: Bench) -> None:
    """Try each way by one process."""
    _each(bench, lambda way, base: _held(bench, way, processes=1, base_mib=base), "one process")


def two_processes(bench: Bench) -> None:
    """Try each way by two processes of one container at once."""
    _each(bench, lambda way, base: _held(bench, way, processes=2, base_mib=base), "two processes")


def _each(bench: Bench, held: Callable[[str, float], None], by: str) -> None:
    base = bench.card.used_mib()
    for way in bench.options.ways:
        name = f"memory, {way} by {by}"
        if not bench.has_time(name, WAY_S):
            continue
        with bench.attempt(name):
            held(way, base)


def _held(bench: Bench, way: str, *, processes: int, base_mib: float) -> None:
    """Take memory in one way; all processes hold what they have while NVML is asked.

    Two processes have room for a second context beside the 1 GiB: contexts take half of that on large cards, and the
    second process would be refused before it tries its way. A library's variable is on the card before its size can be
    known, so each process may be above by one, and no further (plugin/limiter/README.md, "What escapes today").
    """
    limit = LIMIT_MIB + (processes - 1) * bench.context_mib
    container = bench.container(f"{way}-{processes}", memory_mib=limit)
    before = bench.card.settled_mib(base_mib)
    running = [bench.start("ways.py", way, ASK_MIB, env=bench.limited(container)) for _ in range(processes)]
    said = [bench.answer(one) for one in running]
    ready = [at for at, one in enumerate(said) if "ready" in one]
    for at in ready:
        running[at].say("go")
    for at in ready:
        said[at] = bench.answer(running[at])
    taken = bench.card.used_mib() - before
    bench.end(*running)
    why = ", ".join(f"{one['taken_mib']} MiB in {one['times']} ({one['why'] or 'never refused'})" for one in said)
    untried = {one["why"] for one in said if one["times"] == 0} - {OUT_OF_MEMORY}
    if untried:
        bench.skip(f"memory, {way} by {processes}", f"the driver does not have this way: {', '.join(untried)}")
    most = limit * TOLERANCE + (PIECE_MIB * processes if way == "library" else 0)
    bench.note(f"memory, {way} by {processes}: on the card", taken, "MiB", most=most, why=why)
