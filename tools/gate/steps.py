"""Steps of a run and what their tests came to, as `.ci/run` and pytest have written it below `build/gate`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path("build/gate")
MAKE_FAILED, TESTS_FAILED, TIME_OVER = 2, 1, 124
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """One test that failed in a step.

    `no_rerun` is why it is never run again, None where nobody knows. One that failed of starvation may always be.
    """

    test: str
    cause: str
    text: str
    no_rerun: str | None
    starved: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One run of pytest: `status` is None where it never ended."""

    seed: int | None
    env: dict[str, str]
    failures: tuple[Failure, ...] = ()
    uncollected: tuple[str, ...] = ()
    status: int | None = None
    stopped: bool = False
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has ended; `sessions` is empty where it has run no tests."""

    name: str
    status: int
    seconds: int
    limit_min: int
    sessions: tuple[Session, ...] = ()
    failed_lines: tuple[str, ...] = ()
    """The lines of its log that begin with FAILED: by them lint, chaos and bench say what of them has failed."""
    last_lines: tuple[str, ...] = ()
    """The last lines of its log, without make's."""

    @property
    def failed(self) -> bool:
        """Return whether the step's command has failed."""
        return self.status != 0


def results_file(root: Path, step: str) -> Path:
    """Return the file that pytest writes in this step."""
    return root / FOLDER / f"{step}.jsonl"


def steps_file(root: Path) -> Path:
    """Return the file with a line for each step that has ended: name, status, seconds, limit in minutes."""
    return root / FOLDER / "steps"


def read_steps(root: Path) -> list[Step]:
    """Return the steps of the run in the order of their ends."""
    steps = []
    for line in steps_file(root).read_text(encoding="utf-8").splitlines():
        name, status, seconds, limit_min = line.split()
        sessions = tuple(read_sessions(results_file(root, name)))
        log = _log_lines(root, name)
        failed = tuple(" ".join(line.split()[1:]) for line in log if line.startswith("FAILED "))
        last = tuple(line.strip() for line in log if line.strip() and not line.startswith("make"))[-_LAST_LINES:]
        steps.append(Step(name, int(status), int(seconds), int(limit_min), sessions, failed, last))
    return steps


def _log_lines(root: Path, step: str) -> list[str]:
    log = root / "build" / f"{step}.log"
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []


def read_sessions(path: Path) -> list[Session]:
    """Return the runs of pytest in a file of `tests/kits/results.py`; half a line, as a kill leaves it, ends it."""
    sessions: list[list[dict[str, Any]]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row["kind"] == "begin":
            sessions.append([])
        sessions[-1].append(row)
    return [_session(rows) for rows in sessions]


def _session(rows: list[dict[str, Any]]) -> Session:
    failures: dict[str, Failure] = {}
    for row in rows:
        if row["kind"] == "failed" and row["id"] not in failures:  # of call and teardown the first is the cause
            failures[row["id"]] = Failure(row["id"], row["cause"], row["text"], row["no_rerun"], row["starved"])
    uncollected = tuple(row["id"] for row in rows if row["kind"] == "collect")
    end = rows[-1] if rows[-1]["kind"] == "end" else {}
    return Session(
        seed=rows[0]["seed"],
        env=rows[0]["env"],
        failures=tuple(failures.values()),
        uncollected=uncollected,
        status=end.get("status"),
        stopped=end.get("stopped", False),
        counts={key: end.get(key, 0) for key in ("passed", "failed", "skipped")},
    )


def why_it_stays_red(step: Step) -> str:
    """Return why no second run of tests can save a failed step; empty where one can."""
    if step.status == TIME_OVER:
        return f"it was stopped after {step.limit_min} min"
    if step.status not in {TESTS_FAILED, MAKE_FAILED}:
        return f"it ended with status {step.status}"
    if not step.sessions:
        last = " | ".join(step.last_lines)
        return "; ".join(step.failed_lines) or f"its tests have left no results; its last lines: {last}"
    for session in step.sessions:
        if why := _why_it_counts_as_stopped(session):
            return why
    return "" if any(session.failures for session in step.sessions) else "it failed beside its tests"


def _why_it_counts_as_stopped(session: Session) -> str:
    if session.status is None or session.stopped:
        return "its tests were stopped"
    if session.uncollected:
        return f"tests could not be collected: {', '.join(session.uncollected)}"
    return "" if session.status in {0, TESTS_FAILED} else f"pytest ended with status {session.status}"
