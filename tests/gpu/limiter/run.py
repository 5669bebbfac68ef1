"""The limiter on a card: `python tests/gpu/limiter/run.py`, after `make limiter`; at most 8 minutes.

It needs a card that nobody else uses, its driver, `nvidia-smi`, and a Python with NVIDIA's bindings (`--python`);
nothing of edgegpu but this folder and `build/limiter`. Each figure goes to `build/bench/limiter.json` with its limit,
and the exit status is 1 where one is over it. Where there is no card it says so and ends with 77.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

MIB = 1 << 20
LIMIT_MIB, ASK_MIB = 1024, 3072
NO_CARD = 77
DRIVERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat")
WAYS = (
    *("alloc", "small", "pitch", "managed", "asynchronous", "virtual", "unmapped", "array", "array3d", "mipmap"),
    *("contexts", "graph", "captured", "module", "library", "own_pool", "kept_pools", "heap", "printf"),
)
PAIRS = 20
SHARES = (70, 50, 30, 10)
KERNELS = ((100, 4000, 1), (100, 4000, 50), (1000, 400, 1), (1000, 400, 50), (50_000, 20, 1))
"""Kernels of so many microseconds, how many, how many are queued before each wait."""


@dataclass
class Bench:
    """What was measured, and what the programs run with."""

    python: str
    driver: Path
    smi: str
    build: Path
    folder: Path
    card: str = ""
    context_mib: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def note(self, name: str, value: float, unit: str, *, most: float | None = None, why: str = "") -> None:
        """Keep a figure; it is judged where there is a limit."""
        row = {"name": name, "value": round(value, 4), "unit": unit, "limit": most, "why": why}
        row["within"] = most is None or value <= most
        self.rows.append(row)
        limit = "" if most is None else f" (limit {most:g}{'' if row['within'] else ': OVER'})"
        sys.stdout.write(f"{name}: {value:.4g} {unit}{limit}{' ' + why if why else ''}\n")
        sys.stdout.flush()

    def find_card(self) -> None:
        """Learn the first card's uuid."""
        self.card = self.ask("uuid")

    def ask(self, what: str) -> str:
        """Return what the driver's own nvidia-smi says of the first card."""
        words = [self.smi, f"--query-gpu={what}", "--format=csv,noheader,nounits"]
        done = subprocess.run(words, env=self.native(), capture_output=True, text=True, check=True)
        return done.stdout.split()[0]

    def used_mib(self) -> int:
        """Return what NVML says that the card holds."""
        return int(self.ask("memory.used"))

    def native(self) -> dict[str, str]:
        """Return the environment without the limiter."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.driver)}

    def limited(self, container: Path) -> dict[str, str]:
        """Return the environment in a container."""
        return {**os.environ, "LD_LIBRARY_PATH": str(container / "lib")}

    def container(self, name: str, *, memory_mib: int = LIMIT_MIB, words: str = "") -> Path:
        """Lay out a container's folder with its limits; `words` are further ones for the card."""
        folder = self.folder / name
        if not folder.exists():
            (folder / "lib").mkdir(parents=True)
            for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
                stamp(self.build / soname, folder / "lib" / soname, folder=folder, driver=self.driver)
            (folder / "usage").write_bytes(bytes(usage_bytes(self.build)))
        limits = f"memory_bytes={memory_mib * MIB} context_bytes={self.context_mib * MIB} {words}".rstrip()
        new = folder / "limits.new"
        new.write_text(f"edgegpu-limits 1\ncard {self.card} {limits}\n")
        new.replace(folder / "limits")
        return folder

    def start(self, program: str, *words: str, env: dict[str, str]) -> subprocess.Popen[str]:
        """Start one of this folder's programs."""
        command = [self.python, str(HERE / program), *words]
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, program: str, *words: str, env: dict[str, str]) -> dict[str, Any]:
        """Run a program to its end; return what it printed."""
        process = self.start(program, *words, env=env)
        out, _ = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{program} {' '.join(words)} ended with {process.returncode}: {out}")
        return dict(json.loads(out))


def stamp(library: Path, out: Path, **settings: Path) -> None:
    """Copy a library with other folders written into it, as plugin/limiter/common/settings.c allows."""
    data = bytearray(library.read_bytes())
    for name, value in settings.items():
        mark = f"edgegpu-limiter-{name}:".encode().ljust(32, b"\0")
        at = data.index(mark) + len(mark)
        data[at : at + 256] = bytes(value).ljust(256, b"\0")
    out.write_bytes(data)
    out.chmod(0o755)


def usage_bytes(build: Path) -> int:
    """Return the size of a usage file, which the C compiler knows."""
    program = '#include <stdio.h>\n#include "usage.h"\nint main(void) { printf("%zu", sizeof(struct usage)); }\n'
    out = build / "usage-bytes"
    command = ["cc", "-std=gnu11", "-x", "c", "-", "-o", str(out), f"-I{ROOT}/plugin/limiter/common"]
    subprocess.run(command, input=program, text=True, check=True)
    return int(subprocess.run([out], capture_output=True, text=True, check=True).stdout)


def held(bench: Bench, way: str, *, processes: int) -> None:
    """Take memory in one way, by so many processes of one container at once; judge it by what NVML says."""
    container = bench.container(f"{way}-{processes}")
    before = bench.used_mib()
    running = [bench.start("ways.py", way, str(ASK_MIB), env=bench.limited(container)) for _ in range(processes)]
    said = []
    for process in running:
        assert process.stdout is not None
        said.append(process.stdout.readline())
    taken = bench.used_mib() - before
    for process in running:
        process.communicate(timeout=60)
    if "" in said:
        bench.note(f"{way} by {processes}: its program died", 1, "", most=0)
        return
    found = [json.loads(one) for one in said]
    why = ", ".join(f"{one['taken_mib']} MiB in {one['times']} ({one['why'] or 'never refused'})" for one in found)
    bench.note(f"{way} by {processes}: on the card", taken, "MiB", most=LIMIT_MIB * 1.02, why=why)


def memory(bench: Bench, ways: Sequence[str]) -> None:
    """Measure what a context takes, then try each way past the limit."""
    before = bench.used_mib()
    process = bench.start("ways.py", "alloc", "0", env=bench.native())
    assert process.stdout is not None
    process.stdout.readline()
    bench.context_mib = bench.used_mib() - before
    process.communicate(timeout=60)
    bench.note("a context", bench.context_mib, "MiB")
    for processes in (1, 2):
        for way in ways:
            held(bench, way, processes=processes)


def _ratio(bench: Bench, name: str, native: list[float], limited: list[float], most: float | None) -> None:
    """Note the mean of the pairs' ratios and judge its upper bound (95 %, normal)."""
    ratios = [ours / theirs for ours, theirs in zip(limited, native, strict=True)]
    mean = statistics.fmean(ratios)
    bound = mean + 1.645 * (statistics.stdev(ratios) if len(ratios) > 1 else 0) / len(ratios) ** 0.5
    bench.note(f"{name}, against native", bound, "times", most=most, why=f"mean {mean:.4f} of {len(ratios)} pairs")


def costs(bench: Bench, pairs: int) -> None:
    """Compare calls with and without the limiter, one after the other."""
    limits = {"first_call_s": 1.05, "launch_ns": 1.02, "malloc_free_ns": 1.05, "async_pair_ns": 1.1}
    full = bench.limited(bench.container("cost", memory_mib=LIMIT_MIB * 4, words="core_percent=100 policy=strict"))
    below = bench.limited(bench.container("below", memory_mib=LIMIT_MIB * 4, words="core_percent=50 policy=strict"))
    found: dict[str, list[list[float]]] = {}
    for _ in range(pairs):
        for words in ("first", "calls"):
            three = [bench.run("speed.py", words, env=env) for env in (bench.native(), full, below)]
            for name in three[0]:
                found.setdefault(name, []).append([one[name] for one in three])
    for name, rows in found.items():
        native, whole, half = (list(one) for one in zip(*rows, strict=True))
        _ratio(bench, name, native, whole, limits[name])
        if name == "launch_ns":
            _ratio(bench, f"{name}, limited", native, half, 1.05)


def _shares(bench: Bench, name: str, asked: list[int], kernel: tuple[int, int, int], native_s: float) -> None:
    """Run the same work in containers with these shares at once; each share is judged by the time that it took."""
    words = [str(one) for one in kernel]
    processes: list[subprocess.Popen[str]] = []
    for share in asked:
        container = bench.container(f"share-{share}-{len(processes)}", words=f"core_percent={share} policy=strict")
        processes.append(bench.start("speed.py", "work", *words, env=bench.limited(container)))
    for share, process in zip(asked, processes, strict=True):
        out, _ = process.communicate(timeout=300)
        got = 100 * native_s / float(json.loads(out)["work_s"]) if process.returncode == 0 else 0.0
        bench.note(f"{name}: {share} % asked", abs(got - share), "points off", most=2.0, why=f"got {got:.1f} %")


def shares(bench: Bench, kernels: tuple[tuple[int, int, int], ...]) -> None:
    """Measure the shares that work of known length gets, alone and beside another container."""
    for kernel in kernels:
        native_s = float(bench.run("speed.py", "work", *map(str, kernel), env=bench.native())["work_s"])
        name = f"kernels of {kernel[0] / 1000:g} ms, {kernel[2]} queued"
        for share in SHARES:
            _shares(bench, name, [share], kernel, native_s)
        if kernel[0] == 1000:
            for asked in ([30, 60], [50, 50], [70, 30]):
                _shares(bench, f"{name}, {asked[0]} + {asked[1]}", asked, kernel, native_s)


def many(bench: Bench, count: int) -> None:
    """Start many processes at once, with and without the limiter."""
    p99 = {}
    roomy = bench.container("many", memory_mib=count * max(bench.context_mib, LIMIT_MIB))
    for name, env in (("native", bench.native()), ("limited", bench.limited(roomy))):
        running = [bench.start("speed.py", "first", env=env) for _ in range(count)]
        took = [json.loads(process.communicate(timeout=300)[0])["first_call_s"] for process in running]
        p99[name] = statistics.quantiles(took, n=100)[98]
    name = f"first call of {count} processes at once, p99 against native"
    bench.note(name, p99["limited"] / p99["native"], "times", most=1.5)


def main() -> int:
    """Measure what was chosen; return the exit status."""
    chosen = _arguments()
    folders = [chosen.driver] if chosen.driver else [*map(Path, DRIVERS)]
    driver = next((folder for folder in folders if (folder / "libcuda.so.1").exists()), None)
    if driver is None:
        sys.stdout.write(f"no card here: no libcuda.so.1 in {', '.join(map(str, folders))}\n")
        return NO_CARD
    with tempfile.TemporaryDirectory(prefix="eg-") as folder:
        bench = Bench(chosen.python, driver, chosen.smi, chosen.build, Path(folder))
        bench.find_card()
        parts: dict[str, Callable[[], None]] = {
            "memory": lambda: memory(bench, chosen.ways),
            "costs": lambda: costs(bench, chosen.pairs),
            "shares": lambda: shares(bench, KERNELS),
            "many": lambda: many(bench, chosen.processes),
        }
        for name, measure in parts.items():
            if name in (chosen.only or parts):
                measure()
    found = {"card": bench.card, "driver": str(driver), "figures": bench.rows}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    over = [row["name"] for row in bench.rows if not row["within"]]
    sys.stdout.write(f"{len(bench.rows)} figures, {len(over)} over their limit; {chosen.out}\n")
    return 1 if over else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--driver", type=Path, help="the folder with the driver's libraries; looked for by default")
    parser.add_argument("--smi", default="nvidia-smi")
    parser.add_argument("--python", default=sys.executable, help="a Python with cuda.bindings")
    parser.add_argument("--build", type=Path, default=ROOT / "build/limiter")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench/limiter.json")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--processes", type=int, default=64, help="how many are started at once")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, metavar="WAY", help="ways to take memory")
    parser.add_argument("only", nargs="*", metavar="PART", help="memory, costs, shares or many; all by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
