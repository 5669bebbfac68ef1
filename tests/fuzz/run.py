"""Fuzzing: lies to a real agent over a real broker; then, by coverage, what reads messages on both sides."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from fuzz import guided  # noqa: E402  (the path comes first)
from fuzz.bugs import BUGS  # noqa: E402
from fuzz.flood import Outcome, flood  # noqa: E402
from fuzz.readers import readers  # noqa: E402
from kits.signals import exit_when_stopped  # noqa: E402


def flooded(outcome: Outcome) -> dict[str, Any]:
    """Return the part of the report that is about the flood."""
    return {
        "messages": outcome.sent.lies,
        "different": outcome.sent.different,
        "refused": dict(sorted(outcome.refused.items())),
        "passed_over": outcome.sent.lies - outcome.sent.refusable,
        "effects": len(outcome.effects),
        "ways": dict(sorted(outcome.sent.ways.items())),
        "to_controller": outcome.upward,
        "commands": len(outcome.asked),
        "resident_mib": [round(one.resident_mib, 1) for one in (outcome.before, outcome.after)],
        "heap_mib": [round(one.heap_mib, 1) for one in (outcome.before, outcome.after)],
        "flood_seconds": round(outcome.seconds, 1),
    }


def by_coverage(place: Path, *, seconds: int, number: int) -> tuple[dict[str, Any], list[str]]:
    """Run all readers; return the part of the report that is about them, and what is wrong."""
    if not guided.there():
        say(f"left out: {guided.MISSING}")
        return {"left out": guided.MISSING}, [guided.MISSING] if os.environ.get("CI") else []
    found = guided.guided([*readers().values()], place, seconds=seconds, number=number)
    for name, one in found.items():
        say(f"{name:18} {one.runs:8} runs, {one.coverage:4} branches{one.wrong and ': ' + one.wrong}")
    return {
        name: {"runs": one.runs, "seconds": one.seconds, "coverage": one.coverage} for name, one in found.items()
    }, [f"{name}: {one.wrong}; see {place / name}" for name, one in found.items() if one.wrong]


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, help="lies to the agent; 0: none, coverage alone")
    parser.add_argument("--seconds", type=int, default=5, help="for each reader under atheris; 0: none of that")
    parser.add_argument("--seed", type=int, default=None, help="of the lies; another one each time if left out")
    parser.add_argument("--bug", choices=sorted(BUGS), default="", help="give the box a fault: the run must turn red")
    parser.add_argument("--patience-s", type=float, default=90.0, help="how long a wave of lies may take")
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs, also when all is well")
    parser.add_argument("--report", type=Path, default=ROOT / "build/fuzz/report.json")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    number = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    exit_when_stopped()
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))  # a path that a socket's name may have
    say(f"seed {number}, in {place}")
    report: dict[str, Any] = {}
    wrong: list[str] = []
    if chosen.messages:
        outcome = flood(place, messages=chosen.messages, number=number, bug=chosen.bug, patience_s=chosen.patience_s)
        report, wrong = flooded(outcome), outcome.wrong
        say(f"{chosen.messages} lies, {len(outcome.effects)} effects, {len(wrong)} things wrong")
    if chosen.seconds:
        report["atheris"], more = by_coverage(place / "atheris", seconds=chosen.seconds, number=number)
        wrong = [*wrong, *more]
    report |= {"seed": number, "bug": chosen.bug, "wrong": wrong}
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    chosen.report.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    if not wrong and not chosen.keep:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
