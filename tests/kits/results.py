"""What a run of pytest came to, for programs: a line of JSON for its begin, each failed test, and its end.

Written where TEST_RESULTS names a file, which `.ci/run` does. pytest's own junitxml does not serve: it has no node ids
by which a test can be run again, nothing of markers, and nothing at all where the process was killed.

    {"kind": "begin", "seed": of hypothesis, "env": {of the variables that choose what is run}}
    {"kind": "failed", "id", "when": "setup" | "call" | "teardown", "cause", "no_rerun": why | null, "starved", "text"}
    {"kind": "collect", "id", "text"}
    {"kind": "end", "status": pytest's, "stopped": by -x or a lost process, "passed", "failed", "skipped", "seconds"}
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from kits.reruns import STARVED, StarvationError, reason_of

FILE = "TEST_RESULTS"
PROPERTY = "no_rerun"
CHOOSING = ("EDGEGPU_", "TEST_", "BOX_")
TEXT_MOST = 200_000
CAUSE_MOST = 300


def choosing(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that choose what is run and on what; a second run gets the same."""
    return {key: value for key, value in sorted(env.items()) if key.startswith(CHOOSING) and key != FILE}


class RerunProperty:
    """In each process that runs tests: every report says whether its test may be run again."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the property to a report, which xdist carries to the process that writes."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        report.user_properties += [(PROPERTY, reason_of(item, error)), (STARVED, isinstance(error, StarvationError))]
        return report


class ResultsFile:
    """In the process that was started: writes a line for what each test came to."""

    def __init__(self, path: Path, seed: object) -> None:
        self.path, self.began = path, time.monotonic()
        self.ends: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(kind="begin", seed=seed, env=choosing(dict(os.environ)))

    def _write(self, **row: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a failure, and count."""
        if report.failed:
            known = dict(report.user_properties)
            self._write(
                kind="failed",
                id=report.nodeid,
                when=report.when,
                cause=cause_of(report),
                no_rerun=known.get(PROPERTY),
                starved=known.get(STARVED, False),
                text=text_of(report),
            )
            self.ends[report.nodeid] = "failed"
        elif report.skipped:
            self.ends.setdefault(report.nodeid, "skipped")
        elif report.when == "call":
            self.ends.setdefault(report.nodeid, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what could not be collected."""
        if report.failed:
            self._write(kind="collect", id=report.nodeid, text=report.longreprtext[:TEXT_MOST])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the end, which a run that was killed lacks."""
        numbers = Counter(self.ends.values())
        counts = {end: numbers[end] for end in ("passed", "failed", "skipped")}
        xdist = session.config.pluginmanager.get_plugin("dsession")
        stopped = bool(session.shouldfail or session.shouldstop or getattr(xdist, "shouldstop", False))
        took = round(time.monotonic() - self.began, 1)
        self._write(kind="end", status=int(exitstatus), stopped=stopped, seconds=took, **counts)


def cause_of(report: pytest.TestReport) -> str:
    """Return in one line what a test failed of: the error's text, else the last line of what pytest shows."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longreprtext).split("\n")
    lines = [line.strip() for line in lines if line.strip()] or ["no text"]
    return (" ".join(lines) if crash else lines[-1])[:CAUSE_MOST]


def text_of(report: pytest.TestReport) -> str:
    """Return what pytest shows of a failed test: the traceback, and what was printed and logged."""
    sections = "".join(f"\n--- {title}\n{content}" for title, content in report.sections)
    return f"{report.nodeid} ({report.when})\n\n{report.longreprtext}\n{sections}"[-TEXT_MOST:]


def record(config: pytest.Config) -> None:
    """Have this run recorded; the programs that its tests start, pytest among them, do not see the variable."""
    config.pluginmanager.register(RerunProperty())
    path = os.environ.pop(FILE, "")
    if path and not hasattr(config, "workerinput"):
        seed = getattr(config.option, "hypothesis_seed", None)
        config.pluginmanager.register(ResultsFile(Path(path).absolute(), seed))
