"""All turns of all parts, those first that were not seen for longest, and the table of what was last seen when."""

from __future__ import annotations

import datetime as dt
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from gate.memory import folder, read_seen, write_seen
from gate.parts import PARTS, Part, rows_of
from gate.steps import FOLDER, TIME_OVER, results_file, steps_file

NEVER = "never"


def table(seen: dict[str, dict[str, str]], parts: tuple[Part, ...] = PARTS) -> list[str]:
    """Return lines: part, when it last passed, when it last ran, and what that run came to."""
    lines = [f"{'part':<14} {'last passed':<23} {'last run':<23} result"]
    for part in parts:
        for row in rows_of(part.name, part.turns):
            last = seen.get(row, {})
            passed, ran = last.get("passed", NEVER), last.get("ran", NEVER)
            lines.append(f"{row:<14} {passed:<23} {ran:<23} {last.get('result', 'not run')}")
    return lines


def oldest_first(seen: dict[str, dict[str, str]], parts: tuple[Part, ...]) -> list[Part]:
    """Return parts in the order of the oldest row of each."""

    def oldest(part: Part) -> str:
        return min(seen.get(row, {}).get("passed", "") for row in rows_of(part.name, part.turns))

    return sorted(parts, key=oldest)


def run_parts(root: Path, parts: list[Part]) -> None:
    """Run parts one after the other, as steps whose results `gate finish` reads."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    steps_file(root).write_text("", encoding="utf-8")
    for part in parts:
        results_file(root, part.name).unlink(missing_ok=True)
        sys.stdout.write(f"=== {part.name}: {part.command}, its output in build/{part.name}.log\n")
        sys.stdout.flush()
        began = time.monotonic()
        status = _run(root, part)
        with steps_file(root).open("a", encoding="utf-8") as file:
            file.write(f"{part.name} {status} {int(time.monotonic() - began)} {part.limit_min}\n")


def _run(root: Path, part: Part) -> int:
    env = {**os.environ, **dict(part.env), "TEST_RESULTS": str(results_file(root, part.name).absolute()), "CI": "true"}
    with (root / f"build/{part.name}.log").open("wb") as output:
        process = subprocess.Popen(
            shlex.split(part.command),
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(part.limit_min * 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            return TIME_OVER


def seen_file() -> Path:
    """Return the file of what was last seen when."""
    return folder() / "seen.json"


def night(root: Path, only: list[str]) -> list[Part]:
    """Run the parts of the night, or those of the given names; return them."""
    unknown = set(only) - {part.name for part in PARTS}
    if unknown:
        raise ValueError(f"there is no part {', '.join(sorted(unknown))}: {', '.join(part.name for part in PARTS)}")
    parts = tuple(part for part in PARTS if not only or part.name in only)
    chosen = oldest_first(read_seen(seen_file()), parts)
    run_parts(root, chosen)
    return chosen


def remember(results: dict[str, str], now: dt.datetime) -> str:
    """Write what rows of parts have come to; return what is wrong with the file, if anything."""
    return write_seen(seen_file(), results, now)
