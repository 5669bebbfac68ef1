"""The second run of what has failed: each test once more and alone, when the machine has nothing else to do.

A test that passes then is unsteady: it is named, and the run passes if there are at most three of them and none was
unsteady within the last week. What may not be run again, or fails again, leaves its step red.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gate.memory import UnsteadyMemory, name_of
from gate.steps import FOLDER, Failure, Session, Step, read_sessions, why_it_stays_red

MOST_UNSTEADY = 3
MOST_RERUNS = 10
"""So many failed tests are run again, for the names: with more than three unsteady ones the run is red in any case."""
LIMIT_S, ALL_LIMIT_S = 900, 1200
"""How long a second run may take, and all of them together."""
WHOLE = {"demo": ("make", "demo", "ONCE=1")}
"""Steps without pytest that are run again as one unit."""


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A test (or a whole step) that failed, and passed when it ran alone."""

    test: str
    step: str
    log: str
    cause: str
    when: str

    @property
    def is_test(self) -> bool:
        """Return whether it is a test, and no whole step."""
        return "::" in self.test


@dataclass(slots=True)
class Verdict:
    """What the second runs came to: `red` says for each failed step why it stays so."""

    unsteady: list[Unsteady] = field(default_factory=list)
    red: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    too_unsteady: list[str] = field(default_factory=list)
    reruns: int = 0

    def stays_red(self, step: str, why: str) -> None:
        """Note why a step stays red."""
        self.red.setdefault(step, []).append(why)
        sys.stdout.write(f"red: {step}: {why}\n")

    @property
    def passes(self) -> bool:
        """Return whether the run passes."""
        return not self.red and not self.too_unsteady


class Reruns:
    """Runs failed tests of steps once more, below a checkout, by a command that starts pytest."""

    def __init__(self, root: Path, pytest: tuple[str, ...], memory: UnsteadyMemory, now: dt.datetime) -> None:
        self.root, self.pytest, self.memory, self.now = root, pytest, memory, now
        self.verdict = Verdict()
        self.logs = FOLDER / "unsteady"
        self.ends = time.monotonic() + ALL_LIMIT_S

    def judge(self, steps: list[Step]) -> Verdict:
        """Run again what may be, write build/unsteady.json, remember it, and return the verdict."""
        (self.root / self.logs).mkdir(parents=True, exist_ok=True)
        for step in steps:
            if step.failed and step.name in WHOLE:
                self._whole(step)
            elif step.failed:
                self._tests(step)
        verdict = self.verdict
        rows = [asdict(row) for row in verdict.unsteady]
        if len(rows) > MOST_UNSTEADY:
            verdict.too_unsteady.append(f"{len(rows)} unsteady tests, at most {MOST_UNSTEADY} may be")
        for name in sorted({name_of(row.test) for row in verdict.unsteady}):
            if earlier := self.memory.within_a_week(name, self.now):
                verdict.too_unsteady.append(f"{name} was unsteady on {earlier} already, less than a week ago")
        (self.root / "build/unsteady.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        self.memory.add(rows)
        verdict.notes = self.memory.notes
        return verdict

    def _tests(self, step: Step) -> None:
        if why := why_it_stays_red(step):
            self.verdict.stays_red(step.name, why)
            return
        for session in step.sessions:
            for failure in session.failures:
                self._test(step, session, failure)

    def _test(self, step: Step, session: Session, failure: Failure) -> None:
        if failure.no_rerun is None:
            self.verdict.stays_red(step.name, f"{failure.test}: its process was lost, so it is not run again")
        elif failure.no_rerun:
            self.verdict.stays_red(step.name, f"{failure.test} is never run again ({failure.no_rerun})")
        elif self.verdict.reruns >= MOST_RERUNS:
            self.verdict.stays_red(step.name, f"{failure.test}: {MOST_RERUNS} others were run again, this was not")
        else:
            self.verdict.reruns += 1
            log = self._log(step.name, failure.test)
            (self.root / log).write_text(failure.text, encoding="utf-8")
            if self._passes_alone(session, failure, log.with_suffix(".again.log")):
                self._add(Unsteady(failure.test, step.name, str(log), failure.cause, self._when()))
            else:
                self.verdict.stays_red(step.name, f"{failure.test} failed again, alone: {failure.cause}")

    def _passes_alone(self, session: Session, failure: Failure, log: Path) -> bool:
        """Return whether a test passes by itself: same seed, same choice of examples and databases, no turns."""
        results = (self.root / log).with_suffix(".jsonl")
        results.unlink(missing_ok=True)
        kind = "starved" if failure.starved else "1"
        env = {**os.environ, **session.env, "TEST_RESULTS": str(results), "TEST_RERUN": kind}
        seed = () if session.seed is None else (f"--hypothesis-seed={session.seed}",)
        ended = self._run((*self.pytest, *seed, failure.test), env, log)
        ran = read_sessions(results)
        counts = {"passed": 1, "failed": 0, "skipped": 0}
        return ended == 0 and len(ran) == 1 and not ran[0].failures and ran[0].counts == counts

    def _whole(self, step: Step) -> None:
        if step.status not in {1, 2}:
            self.verdict.stays_red(step.name, why_it_stays_red(step))
            return
        self.verdict.reruns += 1
        log = self._log(step.name, step.name)
        failed = self.root / "build" / f"{step.name}.log"
        lines = failed.read_text(encoding="utf-8", errors="replace").splitlines() if failed.exists() else []
        (self.root / log).write_text("\n".join(lines) + "\n", encoding="utf-8")
        cause = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("make")), "")
        if self._run(WHOLE[step.name], dict(os.environ), log.with_suffix(".again.log")) == 0:
            self._add(Unsteady(f"make {step.name}", step.name, str(log), cause, self._when()))
        else:
            self.verdict.stays_red(step.name, f"it failed again, alone: {cause}")

    def _run(self, command: tuple[str, ...], env: dict[str, str], log: Path) -> int:
        """Run a command with its output in a file; return its status, 124 where it took too long."""
        with (self.root / log).open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(min(LIMIT_S, max(0, self.ends - time.monotonic())))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                return 124

    def _add(self, unsteady: Unsteady) -> None:
        self.verdict.unsteady.append(unsteady)
        sys.stdout.write(f"unsteady: {unsteady.test} ({unsteady.step}) passed alone; it had failed: {unsteady.cause}\n")

    def _log(self, step: str, test: str) -> Path:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", test.rpartition("/")[2]).strip("-")[:100]
        return self.logs / f"{step}-{self.verdict.reruns}-{name}.log"

    def _when(self) -> str:
        return self.now.isoformat(timespec="seconds")
