"""Measures and prints a table against the limits: `run.py [--slack N] [PART…]`; writes build/bench/*.json.

Ends with 1 where a figure passes its limit in each of three runs. `e2e` judges what the end-to-end tests have measured.
"""

import argparse
import compileall
import json
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import (  # noqa: E402  (the path comes first)
    bench_agent,
    bench_placement,
    judging,
)
from bench.figures import Figure  # noqa: E402

PACKAGES = ("edge_agent", "cloud_sync", "installer", "plugin")

BENCHES: dict[str, Callable[[Path], list[Figure]]] = {
    "placement": bench_placement.run,
    "agent": bench_agent.run,
}


E2E = "e2e"
OUT = ROOT / "build/bench"


def main() -> int:
    """Run what was named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", choices=[*BENCHES, E2E, []], metavar="PART", help=", ".join([*BENCHES, E2E])
    )
    parser.add_argument(
        "--slack", type=float, default=1.0, help="fail only where a figure is over so many times its limit"
    )
    chosen = parser.parse_args()
    for folder in PACKAGES:
        compileall.compile_dir(ROOT / folder, quiet=1)  # as they are in the bundle: to compile takes memory
    OUT.mkdir(parents=True, exist_ok=True)
    over = False
    for name in chosen.parts or [*BENCHES, E2E]:
        over |= _recoveries(chosen.slack) if name == E2E else _measured(name, chosen.slack)
    return 1 if over else 0


def _measured(name: str, slack: float) -> bool:
    """Measure one part and write it; say whether a figure passes its limit."""
    rows, runs = judging.best_of(lambda: BENCHES[name](ROOT / "build/simdriver"), slack=slack)
    (OUT / f"{name}.json").write_text(json.dumps([{**row, "p99s": runs[row["name"]]} for row in rows], indent=1) + "\n")
    for row in rows:
        _say(judging.line(row, runs[row["name"]], slack=slack))
    return any(judging.is_over(row, slack=slack) for row in rows)


def _recoveries(slack: float) -> bool:
    """Judge what the end-to-end tests have left; nothing where they did not run."""
    path = OUT / f"{E2E}.json"
    if not path.exists():
        return False
    told = [judging.recovery(row, slack=slack) for row in json.loads(path.read_text())]
    for line, _ in told:
        _say(line)
    return any(over for _, over in told)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
