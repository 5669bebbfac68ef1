"""What earlier runs on this machine have seen: unsteady tests, and when each part of the tests last passed.

Both files lie outside the checkout, for a run begins with a new one: in the folder that EDGEGPU_GATE_STATE names, else
in `${XDG_STATE_HOME:-~/.local/state}/edgegpu`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WEEK = dt.timedelta(days=7)


def folder() -> Path:
    """Return the folder of what is remembered from run to run."""
    if chosen := os.environ.get("EDGEGPU_GATE_STATE"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "edgegpu"


def name_of(test: str) -> str:
    """Return a test's name without parameters: another parameter is the same test."""
    return test.partition("[")[0]


class UnsteadyMemory:
    """The unsteady tests of earlier runs: a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.rows = self._read()

    def _read(self) -> list[dict[str, Any]]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            self.notes.append(f"no memory of earlier runs: {self.path} is new, so nothing can be unsteady twice")
            return []
        except OSError as error:
            self.notes.append(f"no memory of earlier runs: cannot read {self.path}: {error.strerror}")
            return []
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                dt.datetime.fromisoformat(row["when"])
                rows.append({"test": str(row["test"]), **row})
            except (ValueError, KeyError, TypeError):
                self.notes.append(f"{self.path}:{number} is no record and is passed over")
        return rows

    def within_a_week(self, test: str, now: dt.datetime) -> str:
        """Return when the same test was last unsteady, if that is less than a week ago; else an empty text."""
        times = [row["when"] for row in self.rows if name_of(row["test"]) == name_of(test)]
        return max((when for when in times if now - dt.datetime.fromisoformat(when) < WEEK), default="")

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append the unsteady tests of this run; where that is impossible, note it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as error:
            self.notes.append(f"the next run will not know of this one: cannot write {self.path}: {error.strerror}")


def read_seen(path: Path) -> dict[str, dict[str, str]]:
    """Return what each part last came to: {"passed": when, "ran": when, "result"}; nothing without the file."""
    try:
        seen = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return seen if isinstance(seen, dict) else {}


def write_seen(path: Path, results: dict[str, str], now: dt.datetime) -> str:
    """Add results ("passed" or another word) of parts; return what is wrong where the file cannot be written."""
    seen = read_seen(path)
    when = now.isoformat(timespec="minutes")
    for part, result in results.items():
        passed = {"passed": when} if result == "passed" else {}
        seen[part] = {**seen.get(part, {}), "ran": when, "result": result, **passed}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return ""
