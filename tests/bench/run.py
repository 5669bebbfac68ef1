"""Measures and prints a table against the limits: `run.py [placement|agent]`; writes build/bench/*.json."""

import compileall
import json
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import bench_agent, bench_placement  # noqa: E402  (the path comes first)
from bench.figures import Figure  # noqa: E402

PACKAGES = ("edge_agent", "cloud_sync", "installer", "plugin")

BENCHES: dict[str, Callable[[Path], list[Figure]]] = {
    "placement": bench_placement.run,
    "agent": bench_agent.run,
}


def main() -> int:
    """Run what was named, or all."""
    wanted = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in wanted if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"no bench {unknown[0]!r}: choose of {', '.join(BENCHES)}\n")
        return 2
    for folder in PACKAGES:
        compileall.compile_dir(ROOT / folder, quiet=1)  # as they are in the bundle: to compile takes memory
    for name in wanted:
        figures = BENCHES[name](ROOT / "build/simdriver")
        target = ROOT / f"build/bench/{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(figures, indent=1) + "\n")
        for row in figures:
            verdict = "within" if row["p99"] <= row["limit"] else "OVER"
            sys.stdout.write(
                f"{row['name']:40} median {row['median']:9.3f} p99 {row['p99']:9.3f} {row['unit']:4}"
                f" limit {row['limit']:g}: {verdict} ({row['runs']} runs)\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
