"""The gate's commands: `rerun` and `summary` for `.ci/run`, `nightly` and `seen` for make.

PYTHONPATH=tools python3 -m gate rerun              after the lanes: run what has failed once more
PYTHONPATH=tools python3 -m gate summary TITLE      at the end: the table; status 1 if the run is red
PYTHONPATH=tools python3 -m gate nightly [PART...]  all turns of all parts, or of these
PYTHONPATH=tools python3 -m gate seen               what was last seen when
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from gate.memory import UnsteadyMemory, folder, read_seen
from gate.nightly import night, remember, seen_file, table
from gate.parts import TURNS, rows_of, seen_by_ci
from gate.rerun import Reruns, Unsteady, Verdict
from gate.steps import FOLDER, Step, read_steps, why_it_stays_red
from gate.summary import lines

PYTEST = ".venv/bin/python -m pytest"


def verdict_file(root: Path) -> Path:
    """Return the file by which `summary` knows what `rerun` has found."""
    return root / FOLDER / "verdict.json"


def rerun(root: Path, pytest: str, now: dt.datetime) -> Verdict:
    """Run what has failed once more, and keep the verdict for the summary."""
    verdict_file(root).unlink(missing_ok=True)
    steps = read_steps(root)
    verdict = Reruns(root, tuple(shlex.split(pytest)), UnsteadyMemory(folder() / "unsteady.jsonl"), now).judge(steps)
    document = {"judged": [step.name for step in steps], **asdict(verdict)}
    verdict_file(root).write_text(json.dumps(document), encoding="utf-8")
    return verdict


def read_verdict(root: Path, steps: list[Step]) -> Verdict:
    """Return what `rerun` has found; a step that has failed since, or without it, stays red."""
    document = json.loads(verdict_file(root).read_text(encoding="utf-8")) if verdict_file(root).exists() else {}
    judged = document.pop("judged", [])
    unsteady = [Unsteady(**row) for row in document.pop("unsteady", [])]
    verdict = Verdict(unsteady=unsteady, **document)
    for step in steps:
        if step.failed and step.name not in judged:
            verdict.red[step.name] = [why_it_stays_red(step) or "it is never run again"]
    return verdict


def ci_results(steps: list[Step], verdict: Verdict) -> dict[str, str]:
    """Return what the steps of a run of `.ci/run` have shown of parts."""
    day, turns = int(os.environ.get("BOX_DAY") or 0), int(os.environ.get("TEST_TURNS") or TURNS)
    return {
        row: "failed" if step.name in verdict.red else "passed"
        for step in steps
        for row in seen_by_ci(step.name, day=day, turns=turns)
    }


def summary(root: Path, title: str, now: dt.datetime) -> int:
    """Print the closing lines, remember what was seen, and return the run's status."""
    steps = read_steps(root)
    verdict = read_verdict(root, steps)
    if wrong := remember(ci_results(steps, verdict), now):
        verdict.notes.append(wrong)
    sys.stdout.write("\n" + "\n".join(lines(steps, verdict, title)) + "\n")
    return 0 if verdict.passes else 1


def nightly(root: Path, only: list[str], pytest: str, now: dt.datetime) -> int:
    """Run all parts, run what failed once more, and print both tables; return the status."""
    parts = night(root, only)
    verdict = rerun(root, pytest, now)
    steps = read_steps(root)
    names = {part.name: part for part in parts}
    ends = {step.name: "failed" if step.name in verdict.red else "passed" for step in steps}
    rows = {row: end for name, end in ends.items() for row in rows_of(name, names[name].turns)}
    if wrong := remember(rows, dt.datetime.now(tz=dt.UTC)):
        verdict.notes.append(wrong)
    sys.stdout.write("\n".join(["", *lines(steps, verdict, "the night")]) + "\n")
    print_seen()
    return 0 if verdict.passes else 1


def print_seen() -> None:
    """Print what was last seen when."""
    sys.stdout.write("\n".join(["", f"=== last seen ({seen_file()})", *table(read_seen(seen_file()))]) + "\n")


def main(words: list[str] | None = None) -> int:
    """Run the command that the words name; return its status."""
    parser = argparse.ArgumentParser(prog="gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (.)")
    parser.add_argument("--pytest", default=PYTEST, help=f"what starts pytest ({PYTEST})")
    parser.add_argument("command", choices=["rerun", "summary", "nightly", "seen"])
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args(words)
    root, now = asked.root.absolute(), dt.datetime.now(tz=dt.UTC)
    match asked.command:
        case "rerun":
            rerun(root, asked.pytest, now)
            return 0
        case "summary":
            return summary(root, " ".join(asked.words), now)
        case "nightly":
            try:
                return nightly(root, asked.words, asked.pytest, now)
            except ValueError as error:
                parser.error(str(error))
        case _:
            print_seen()
            return 0


if __name__ == "__main__":
    sys.exit(main())
