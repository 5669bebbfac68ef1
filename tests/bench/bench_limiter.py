"""Measures what the limiter takes of its own, without a card: calls, starts of programs, many processes at once.

Calls are measured on a driver that answers at once, everything else on the simulated driver; always beside the same
without the limiter, in the same run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, figure
from native.limiterkit import LIBRARIES, NULL_CARD, SOURCES, Container, compile_program, make_container
from native.rankskit import calls_per_launch

from edgegpu_sim.driver import SimDriver, make_card

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_MIB, CONTEXT_MIB, SHARE = 64, 4, 50
QUEUE, QUEUE_S = 50, 2
"""Kernels that are launched before the program waits, and for how many seconds it does so."""
ROUNDS, EXECS = 10, 100
"""Rounds with and without, which take turns; runs of a program in each."""
STARTS, START_ROUNDS = 64, 5
INIT_MS = 200
"""What cuInit takes: of a real driver the first call took 211 to 233 ms (H200), one process at a time."""
PERCENT = 100
PROGRAM = "/bin/true"
"""A program that uses no GPU."""


def run(build: Path) -> list[Figure]:
    """Measure all; takes some twenty seconds. build: the simulated driver's; the limiter's lies beside it."""
    limiter = build.parent / "limiter"
    with tempfile.TemporaryDirectory(prefix="eg-") as made:
        folder = Path(made)
        return [
            *_calls(folder, limiter),
            *_driver_calls(folder, limiter),
            _lookups(folder, limiter, build),
            *_programs(folder, limiter, build),
            _starts(folder, limiter, build),
        ]


def _calls(folder: Path, limiter: Path) -> list[Figure]:
    """Return the nanoseconds of a call: the best of several runs with the limiter, less the same without."""
    null = folder / "null"
    null.mkdir()
    sources = ["tests/nulldriver.c", "tests/nullobjects.c"]
    compile_program(null / "libcuda.so.1", limiter, sources, "-O2", "-shared", "-fPIC")
    bench = compile_program(folder / "bench", limiter, ["tests/bench.c"], "-O2")
    container = make_container(folder / "calls", limiter, null)
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    bare, own = _measured(container, bench, null / "libcuda.so.1"), _measured(container, bench)
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB, core=SHARE)
    limited = _measured(container, bench)
    return [
        figure("limiter, launch", [own["launch"] - bare["launch"]], unit="ns", limit=60.0),
        figure("limiter, launch below its share", [limited["launch"] - bare["launch"]], unit="ns", limit=150.0),
        figure("limiter, async alloc and free", [own["async_pair"] - bare["async_pair"]], unit="ns", limit=70.0),
        figure("limiter, alloc and free", [own["alloc_and_free"] - bare["alloc_and_free"]], unit="ns", limit=120.0),
    ]


def _driver_calls(folder: Path, limiter: Path) -> list[Figure]:
    """Return the calls of the limiter's own that the driver gets for each launch of a kernel of 1 ms."""
    found = []
    for name, depth, limit in (("one at a time", 1, 6.05), ("in queues", QUEUE, 6.5)):
        made = folder / f"driver-calls-{depth}"
        calls = calls_per_launch(made, limiter, core=SHARE, kernel_us=1000, depth=depth, seconds=QUEUE_S)
        found.append(figure(f"limiter, driver calls per launch, {name}", [calls], unit="calls", limit=limit))
    return found


def _lookups(folder: Path, limiter: Path, build: Path) -> Figure:
    """Return the microseconds that it takes longer to look all functions of the list up, each by its name."""
    names = [row.split("\t")[0] for row in (SOURCES / "cuda/functions.tsv").read_text().splitlines() if row[:2] == "cu"]
    listed = folder / "names"
    listed.write_text("".join(f"{name}\n" for name in names))
    driver = SimDriver.create(folder / "lookups-box", [make_card(0, "Tesla T4", 8192)], build=build)
    container = make_container(folder / "lookups-container", limiter, driver.libraries)
    program = compile_program(folder / "lookups", limiter, ["tests/lookups.c"], "-O2")
    bare, own = (
        _measured(container, program, library, listed)["lookups"]
        for library in (driver.libraries / "libcuda.so.1", "libcuda.so.1")
    )
    return figure(f"limiter, {len(names)} lookups", [own - bare], unit="us", limit=300.0)


def _measured(container: Container, *command: str | Path) -> dict[str, float]:
    rows = (line.rsplit(maxsplit=1) for line in container.run(*command).splitlines())
    return {name: float(value) for name, value in rows}


def _programs(folder: Path, limiter: Path, build: Path) -> list[Figure]:
    """Return the microseconds that a program that uses no GPU takes longer: by the mount alone, and preloaded.

    Runs with and without take turns; of each a tenth is quicker, so what other programs take does not count.
    """
    starts = compile_program(folder / "starts", limiter, ["tests/starts.c"], "-O2")
    driver = SimDriver.create(folder / "programs-box", [make_card(0, "Tesla T4", 8192)], build=build)
    container = make_container(folder / "programs", limiter, driver.libraries)
    without = {**os.environ, "LD_LIBRARY_PATH": str(driver.libraries)}
    preload = " ".join(str(container.libraries / name) for name in LIBRARIES)
    ways = {
        "limiter, exec, by the mount alone": container.environment(),
        "limiter, exec, preloaded": {**container.environment(), "LD_PRELOAD": preload},
    }
    found = []
    for name, within in ways.items():
        plain: list[float] = []
        held: list[float] = []
        for _ in range(ROUNDS):
            plain += _runs(starts, without)
            held += _runs(starts, within)
        took = statistics.quantiles(held, n=10)[0] - statistics.quantiles(plain, n=10)[0]
        found.append(figure(name, [took], unit="us", limit=250.0))
    return found


def _runs(starts: Path, environment: Mapping[str, str]) -> list[float]:
    """Return the microseconds of each run of a program; the first are not counted."""
    words = [str(starts), "exec", str(EXECS), PROGRAM]
    done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()][EXECS // 10 :]


def _starts(folder: Path, limiter: Path, build: Path) -> Figure:
    """Return by how much longer the slowest of many processes takes to begin that all begin at once."""
    starts = compile_program(folder / "starts-at-once", limiter, ["tests/starts.c"], "-O2")
    card = make_card(0, "Tesla T4", 8192)
    driver = SimDriver.create(folder / "starts-box", [card], build=build)
    with (driver.root / "var/lib/nvidia-sim/cards").open("a") as cards:
        cards.write(f"init_ms {INIT_MS}\n")
    container = make_container(folder / "starts-container", limiter, driver.libraries)
    container.limit((card, 8192), context_mib=CONTEXT_MIB, core=SHARE)
    native, held = [], []
    for _ in range(START_ROUNDS):
        native += _begun(starts, {**os.environ, "LD_LIBRARY_PATH": str(driver.libraries)})
        held += _begun(starts, container.environment())
    ratio = _p99(held) / _p99(native)
    return figure(f"limiter, {STARTS} processes at once: p99 of init, native's is 1", [ratio], unit="", limit=1.5)


def _begun(starts: Path, environment: Mapping[str, str]) -> list[float]:
    words = [str(starts), "init", "libcuda.so.1", str(STARTS)]
    done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=PERCENT)[-1]
