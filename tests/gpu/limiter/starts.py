"""Many processes that start at once: how long the slowest of their first calls take."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.limiter.bench import Bench

MOST = 1.5
MOST_S = 120.0


def measure(bench: Bench) -> None:
    """Start as many as were asked for, with and without the limiter."""
    program, count = bench.compile("calls.c"), bench.options.processes
    total, _ = bench.card.memory_mib()
    fits = int(0.9 * total / max(bench.context_mib, 1))
    if fits < count:
        bench.skip(f"many: {count} processes", f"the card has room for {fits} contexts: so many are started")
        count = fits
    roomy = bench.container("many", memory_mib=(count + 1) * max(bench.context_mib, 1))
    p99 = {}
    for name, env in (("native", bench.native()), ("limited", bench.limited(roomy))):
        running = [bench.start(program, "first", env=env) for _ in range(count)]
        took = [float(bench.answer(one, MOST_S)["first_call_s"]) for one in running]
        bench.end(*running)
        p99[name] = statistics.quantiles(took, n=100)[98] if count > 1 else took[0]
    why = f"native {p99['native']:.3f} s"
    name = f"first call of {count} processes at once, p99 against native"
    bench.note(name, p99["limited"] / p99["native"], "times", most=MOST, why=why)
