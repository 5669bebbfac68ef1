"""What `make driver` saw: figures of the tests, put together as build/driver/report.json, a table and a document."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driver.pins import Branch, read_pins

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/driver"
_LINES = FOLDER / "figures.jsonl"
MARK = "<!-- make driver WRITE=1 writes what follows -->"
MOST_SKIPPED = 1
"""How many branches the archive may have dropped; more is a failure."""


class Figures:
    """The figures of one branch: each is a line in a file, for tests run in several processes."""

    def __init__(self, branch: str) -> None:
        self.branch = branch

    def note(self, subject: str, **values: int | str) -> None:
        """Note figures of a subject."""
        self._write({"subject": subject, "values": values})

    def skipped(self, why: str) -> None:
        """Note why the branch was left out."""
        self._write({"skipped": why})

    def _write(self, line: dict[str, Any]) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with _LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"branch": self.branch, **line}) + "\n")


def _lines() -> list[dict[str, Any]]:
    lines = _LINES.read_text(encoding="utf-8").splitlines() if _LINES.exists() else []
    return [json.loads(line) for line in lines]


def _seen() -> tuple[dict[str, dict[str, dict[str, int | str]]], dict[str, str]]:
    """Return the figures by branch and subject, and why branches were skipped."""
    figures: dict[str, dict[str, dict[str, int | str]]] = {}
    skipped: dict[str, str] = {}
    for line in _lines():
        if "began" in line:
            continue
        if "skipped" in line:
            skipped[line["branch"]] = line["skipped"]
        else:
            figures.setdefault(line["branch"], {}).setdefault(line["subject"], {}).update(line["values"])
    return figures, skipped


def _cell(subjects: dict[str, dict[str, int | str]], subject: str, *names: str) -> str:
    values = subjects.get(subject, {})
    return " / ".join(str(values[name]) for name in names if name in values) or "-"


_COLUMNS = {
    "functions of CUDA / lost": ("exports", "libcuda.so.1", "libcuda.so.1 lost"),
    "of NVML / lost": ("exports", "libnvidia-ml.so.1", "libnvidia-ml.so.1 lost"),
    "pointers asked / wrong": ("pointers", "asked", "wrong"),
    "nvidia-smi calls alike": ("nvidia-smi", "alike"),
}


def table(branches: tuple[Branch, ...]) -> list[str]:
    """Return the figures as the lines of a table in Markdown."""
    figures, skipped = _seen()
    lines = [f"| branch | version | {' | '.join(_COLUMNS)} |", "|---" * (2 + len(_COLUMNS)) + "|"]
    for branch in branches:
        cells = [_cell(figures.get(branch.name, {}), *column) for column in _COLUMNS.values()]
        version = "skipped" if branch.name in skipped else branch.version
        lines.append(f"| {branch.name} | {version} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Begin a run, or end it: write the report, print the table, and say whether too many branches were skipped."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--begin", action="store_true", help="forget the figures of earlier runs")
    parser.add_argument("--document", type=Path, help="the document whose table is written anew")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if args.begin:
        _LINES.write_text(json.dumps({"began": time.time()}) + "\n", encoding="utf-8")
        return 0
    figures, skipped = _seen()
    pins, day = read_pins(), datetime.now(UTC).date().isoformat()
    seconds = round(time.time() - next((line["began"] for line in _lines() if "began" in line), time.time()))
    lines = table(pins.branches)
    report = {"day": day, "seconds": seconds, "pinned": pins.day, "branches": figures, "skipped": skipped}
    (FOLDER / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(["", *lines, *skipped.values(), f"{seconds} s", ""]))
    if args.document is not None:
        text = args.document.read_text(encoding="utf-8")
        head, mark, _ = text.partition(MARK)
        args.document.write_text(
            f"{head}{mark}\n\nSeen on {day}, in {seconds} s:\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
        )
    if len(skipped) > MOST_SKIPPED:
        sys.stderr.write(f"driver: {len(skipped)} branches were skipped, {MOST_SKIPPED} may be: make driver-pin\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
