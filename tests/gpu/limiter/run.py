"""The limiter on a card: `python tests/gpu/limiter/run.py`, after `make limiter`; at most 8 minutes.

It needs a card that nobody else uses, its driver, a C compiler, and a Python with NVIDIA's bindings (`--python`);
nothing of edgegpu but tests, `build/limiter` and, for containers that compete, the plugin. Each figure goes to
`build/bench/limiter.json` with its limit, after each part. The exit status is 1 where a figure is over its limit, 2
where the machine lacks something, 3 where none is over but time was too short for all, and 77 where there is no card.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpu.limiter import costs, live, memory, pairs, shares, starts, static_runtime, torch_steps, view, waits
from gpu.limiter.bench import SONAMES, Bench, Options, TimeUpError
from gpu.limiter.card import Card, NvmlError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
OVER, LACKING, LEFT_OUT, NO_CARD = 1, 2, 3, 77
SECONDS = 470.0
DRIVERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the measurement; `need_s`: with less time left it is not begun."""

    name: str
    measure: Callable[[Bench], None]
    need_s: float


PARTS = (
    Part("memory", memory.one_process, 8),
    Part("waits", waits.measure, 8),
    Part("view", view.measure, 8),
    Part("live", live.measure, 15),
    Part("shares", shares.measure, 15),
    Part("pairs", pairs.measure, 20),
    Part("costs", costs.measure, 20),
    Part("memory2", memory.two_processes, 8),
    Part("many", starts.measure, 30),
    Part("static", static_runtime.measure, 10),
    Part("torch", torch_steps.measure, 40),
)
"""In the order of what they are worth: where time is short the last are left out."""


def main() -> int:
    """Measure what was chosen; return the exit status."""
    chosen = _arguments()
    folders = [chosen.driver] if chosen.driver else [*map(Path, DRIVERS)]
    driver = next((folder for folder in folders if all((folder / one).exists() for one in SONAMES)), None)
    if driver is None:
        sys.stdout.write(f"no card here: no {' and '.join(SONAMES)} in {', '.join(map(str, folders))}\n")
        return NO_CARD
    if lacking := _lacking(chosen.python, chosen.build):
        sys.stdout.write(f"cannot measure: {lacking}\n")
        return LACKING
    try:
        card = Card(driver / SONAMES[1])
    except NvmlError as error:
        sys.stdout.write(f"no card here: {error}\n")
        return NO_CARD
    options = Options(
        **{name: getattr(chosen, name) for name in ("python", "smi", "build", "out", "pairs", "processes")},
        **{name: getattr(chosen, name) for name in ("work_s", "settle_s", "window_s", "whole")},
        ways=tuple(chosen.ways),
    )
    deadline = time.monotonic() + chosen.seconds
    with tempfile.TemporaryDirectory(prefix="eg-") as folder:
        bench = Bench(options, driver, card, Path(folder), deadline)
        try:
            memory.measure_context(bench)
            for part in PARTS:
                if part.name in (chosen.only or [one.name for one in PARTS]):
                    _measure(bench, part)
        finally:
            bench.end_all()
            bench.write()
    over = [row["name"] for row in bench.rows if not row["within"]]
    sys.stdout.write(
        f"{len(bench.rows)} figures, {len(over)} over their limit; {len(bench.skipped)} skipped, "
        f"{len(bench.left_out)} left out for lack of time; {options.out}\n"
    )
    return OVER if over else LEFT_OUT if bench.left_out else 0


def _lacking(python: str, build: Path) -> str:
    """Return what no part can do without, in words; empty where all is there."""
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    if missing := [soname for soname in SONAMES if not (build / soname).exists()]:
        return f"no {' and '.join(missing)} in {build}: run make limiter, or give --build"
    done = subprocess.run([python, "-c", "import cuda.bindings.driver"], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{python} has no NVIDIA bindings: pip install cuda-bindings, or give --python"
    return ""


def _measure(bench: Bench, part: Part) -> None:
    """Measure a part; one that breaks is a failure among the figures, and the next one goes on."""
    if not bench.has_time(part.name, part.need_s):
        return
    began = time.monotonic()
    try:
        part.measure(bench)
    except TimeUpError:
        bench.leave_out(f"{part.name}, the rest of it")
    except Exception as error:  # noqa: BLE001 - what went wrong in one part must not cost the others' figures
        traceback.print_exc()
        bench.note(f"{part.name}: the measurement broke", 1, "failures", most=0, why=str(error))
    bench.end_all()
    bench.note(f"{part.name}: took", time.monotonic() - began, "s")
    bench.write()


def _arguments() -> argparse.Namespace:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--driver", type=Path, help="the folder with the driver's libraries; looked for by default")
    parser.add_argument("--smi", default="nvidia-smi")
    parser.add_argument("--python", default=sys.executable, help="a Python with cuda.bindings")
    parser.add_argument("--build", type=Path, default=ROOT / "build/limiter")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench/limiter.json")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after so many the run ends")
    parser.add_argument("--pairs", type=int, default=20, help="of calls with and without the limiter")
    parser.add_argument("--processes", type=int, default=64, help="how many are started at once")
    parser.add_argument("--work-s", type=float, default=3.0, help="seconds of work for each share")
    parser.add_argument("--settle-s", type=float, default=4.0, help="seconds that the control of pairs has to settle")
    parser.add_argument("--window-s", type=float, default=5.0, help="seconds for which pairs are measured then")
    parser.add_argument("--whole", action="store_true", help="every share and pair, some 40 minutes; see --seconds")
    parser.add_argument("--ways", nargs="+", default=memory.WAYS, choices=memory.WAYS, metavar="WAY")
    parser.add_argument("only", nargs="*", metavar="PART", help=f"{', '.join(names)}; all by default")
    chosen = parser.parse_args()
    if wrong := sorted(set(chosen.only) - set(names)):
        parser.error(f"no part {', '.join(wrong)}; there are {', '.join(names)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
