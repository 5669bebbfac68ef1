"""Measures and prints a table against the limits: `run.py [--slack N] [--e2e-ran] [PART…]`; writes build/bench/*.json.

Ends with 1 where a figure passes its limit in each of three runs. With a slack, as in CI, a machine that is slow at the
moment has more time: a reference beside each measurement says how much.
`e2e` judges what the end-to-end tests have measured. Where they did not run, that is said and is no fault: they need
root and a k3s, the other parts need neither. After a run of them (`--e2e-ran`, as in CI) it is one, for a limit that
nobody has measured is not kept.
"""

import argparse
import compileall
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import (  # noqa: E402  (the path comes first)
    bench_agent,
    bench_cloud,
    bench_limiter,
    bench_placement,
    judging,
    slowness,
)
from bench.figures import Figure  # noqa: E402

PACKAGES = ("edge_agent", "cloud_sync", "installer", "plugin")

BENCHES: Mapping[str, Callable[[Path], list[Figure]]] = {
    "placement": bench_placement.run,
    "agent": bench_agent.run,
    "cloud": bench_cloud.run,
    "limiter-cost": bench_limiter.run,
}

AGAIN: Mapping[str, Callable[[Path], list[Figure]]] = {"cloud": bench_cloud.run_judged}
"""What of a part is measured again where a figure was over its limit: by default all."""

E2E = "e2e"
OUT = ROOT / "build/bench"


def main(
    words: Sequence[str] | None = None,
    benches: Mapping[str, Callable[[Path], list[Figure]]] = BENCHES,
    machine: Callable[[], float] = slowness.slowness,
) -> int:
    """Run what was named, or all; return the exit status.

    Args:
        words: the command line without the program's name.
        benches: measure the parts, by name.
        machine: says how slow the machine is at the moment; asked where there is a slack.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", choices=[*benches, E2E, []], metavar="PART", help=", ".join([*benches, E2E])
    )
    parser.add_argument(
        "--slack", type=float, default=1.0, help="fail only where a figure is over so many times its limit"
    )
    parser.add_argument("--e2e-ran", action="store_true", help="fail where no recovery time has samples enough")
    parser.add_argument("--out", type=Path, default=OUT, help="where figures are written, and those of e2e read")
    chosen = parser.parse_args(words)
    for folder in PACKAGES:
        compileall.compile_dir(ROOT / folder, quiet=1)  # as they are in the bundle: to compile takes memory
    chosen.out.mkdir(parents=True, exist_ok=True)
    over: list[str] = []
    for name in chosen.parts or [*benches, E2E]:
        file = chosen.out / f"{name}.json"
        if name == E2E:
            over += _recoveries(file, slack=chosen.slack, ran=chosen.e2e_ran)
        else:
            build = ROOT / "build/simdriver"
            measure, again = partial(benches[name], build), partial(AGAIN.get(name, benches[name]), build)
            if chosen.slack != 1:
                measure, again = (partial(judging.on_a_slow_machine, part, machine) for part in (measure, again))
            over += _measured(measure, again, file, slack=chosen.slack)
    if over:
        _say(f"FAILED  over the limit, or not measured: {', '.join(over)}")  # the line that CI's summary quotes
    return 1 if over else 0


def _measured(
    measure: Callable[[], list[Figure]], again: Callable[[], list[Figure]], file: Path, *, slack: float
) -> list[str]:
    """Measure one part and write it; return the names of the figures that pass their limits."""
    rows, runs = judging.best_of(measure, slack=slack, again=again)
    file.write_text(json.dumps([{**row, "p99s": runs[row["name"]]} for row in rows], indent=1) + "\n")
    for row in rows:
        _say(judging.line(row, runs[row["name"]], slack=slack))
    return [row["name"] for row in rows if judging.is_over(row, slack=slack)]


def _recoveries(file: Path, *, slack: float, ran: bool) -> list[str]:
    """Judge what the end-to-end tests have left; return the times over their limits, or missing though they ran."""
    rows = json.loads(file.read_text()) if file.exists() else []
    over = []
    for row in rows:
        line, is_over = judging.recovery(row, slack=slack)
        _say(line)
        over += [row["name"]] if is_over else []
    if missing := judging.unmeasured(rows):
        _say(f"{missing}{'' if ran else ' (make e2e measures it)'}: {'FAILED' if ran else 'not judged'}")
    return over + ([judging.PROMISED] if ran and missing else [])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
