"""The record of which test files ran on which programs: a line of JSON for each file that a run took whole."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lab import labkit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

RECORD = Path(__file__).resolve().parents[2] / "build/e2e/tested.jsonl"
"""What the runs in this checkout have added; `tools/tested_versions.py --add` takes it into the documents."""


class TestedRecord:
    """Counts the outcomes of each file, and writes them down at the end, with the versions of the nodes that ran."""

    def __init__(self, path: Path = RECORD, more: Mapping[str, object] | None = None) -> None:
        self._path = path
        self._more = dict(more or {})
        self._outcomes: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._partial: set[str] = set()

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Note the files of which a run takes only a part."""
        self._partial |= {item.nodeid.partition("::")[0] for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test: of its set-up, call and tear-down the worst counts."""
        outcomes = self._outcomes[report.nodeid.partition("::")[0]]
        if report.when == "call" or report.outcome != "passed":
            before = outcomes.get(report.nodeid, "")
            outcomes[report.nodeid] = "failed" if "failed" in (before, report.outcome) else report.outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Append the lines; none where single tests were named, or where the nodes were of several versions."""
        if len(labkit.PROGRAMS) != 1 or any("::" in argument for argument in session.config.args):
            return
        (programs,) = labkit.PROGRAMS
        day = dt.datetime.now(tz=dt.UTC).date().isoformat()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as record:
            for file, outcomes in sorted(self._outcomes.items()):
                if file in self._partial or session.shouldstop:
                    continue
                counts = Counter(outcomes.values())
                numbers = {name: counts[name] for name in ("passed", "failed", "skipped")}
                line = {"day": day, **asdict(programs), "file": Path(file).name, **numbers, **self._more}
                record.write(json.dumps(line) + "\n")
