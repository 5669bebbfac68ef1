"""What calls cost with the limiter, against the driver's own: the first one, a launch, memory; in interleaved pairs.

Processes are started anew every few pairs: where one happens to lie in memory, or on which core, makes it faster or
slower for as long as it lives, and must not decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu.limiter.ratios import judge_ratio

if TYPE_CHECKING:
    from pathlib import Path

    from gpu.limiter.bench import Bench

LIMITS = {"launch_ns": 1.02, "malloc_free_ns": 1.05, "async_pair_ns": 1.1}
FIRST_CALL, BELOW_SHARE = 1.05, 1.05
PAIRS_A_PROCESS = 5
PAIR_S = 3.0
ROOM_MIB = 4096


def measure(bench: Bench) -> None:
    """Measure each in as many pairs as were asked for, or as there is time for; both are said."""
    program = bench.compile("calls.c")
    _first(bench, program)
    _calls(bench, program)


def _environments(bench: Bench) -> list[dict[str, str]]:
    """Return those without the limiter, with the whole card, and with half of it."""
    memory = ROOM_MIB + bench.context_mib
    full = bench.container("cost", memory_mib=memory, words="core_percent=100 policy=strict")
    half = bench.container("cost-half", memory_mib=memory, words="core_percent=50 policy=strict")
    return [bench.native(), bench.limited(full), bench.limited(half)]


def _first(bench: Bench, program: Path) -> None:
    took: list[list[float]] = [[], []]
    environments = _environments(bench)[:2]
    for env in environments:  # the first of all finds nothing in the page cache
        bench.run(program, "first", env=env)
    for at in range(bench.options.pairs):
        if not bench.has_time(f"costs, pairs of first calls from the {at + 1}th on", PAIR_S):
            break
        for index in _order(at, 2):
            took[index].append(float(bench.run(program, "first", env=environments[index])["first_call_s"]))
    if took[0]:
        judge_ratio(bench, "first_call_s", took[0], took[1], most=FIRST_CALL)


def _calls(bench: Bench, program: Path) -> None:
    found: dict[str, list[list[float]]] = {name: [[], [], []] for name in LIMITS}
    environments = _environments(bench)
    for at in range(bench.options.pairs):
        if not bench.has_time(f"costs, pairs of calls from the {at + 1}th on", PAIR_S):
            break
        if at % PAIRS_A_PROCESS == 0:
            bench.end_all()
            running = [bench.start(program, "rounds", env=env) for env in environments]
            for one in running:
                bench.answer(one)
        for index in _order(at, 3):
            said = bench.ask(running[index], "go")
            for name in LIMITS:
                found[name][index].append(float(said[name]))
    bench.end_all()
    for name, (native, full, _) in found.items():
        if native:
            judge_ratio(bench, name, native, full, most=LIMITS[name])
    native, _, half = found["launch_ns"]
    if native:
        judge_ratio(bench, "launch_ns below a share of 50 %", native, half, most=BELOW_SHARE)


def _order(at: int, count: int) -> list[int]:
    """Return whose turn it is; every other pair begins with the other."""
    return list(range(count)) if at % 2 == 0 else list(reversed(range(count)))
