"""Clocks that are wrong by years, for one process and what it starts: the time of day, not that since the boot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from chaos.kept import Kept

_LIBRARY = "*/faketime/libfaketimeMT.so.1"
_SLEEP = Path(__file__).with_name("sleep.c")
_YEAR_DAYS = 365


def lacks() -> str:
    """Return why no clock can be wrong here, or nothing.

    Raises:
        SystemExit: this is CI.
    """
    if any(Path("/usr/lib").glob(_LIBRARY)):
        return ""
    if os.environ.get("CI"):
        raise SystemExit("faketime is not there: apt-get install faketime")
    return "faketime is not there: apt-get install faketime"


def set_wrong(agent: Kept, place: Path, rng: random.Random) -> Path:
    """Let a process see another year from its next start on; returns the file that `leap_back` takes."""
    file = place / f"{agent.name}.clock"
    days = rng.choice((-30, -7, -1, 1, 5, 20)) * _YEAR_DAYS + rng.randint(-90, 90)
    file.write_text(f"{days:+d}d")
    agent.clock = {
        "LD_PRELOAD": f"{_sleeps(place)}:{next(Path('/usr/lib').glob(_LIBRARY))}",
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    return file


def _sleeps(place: Path) -> Path:
    """Make the library that mends libfaketime's sleeps, where it is not made yet."""
    made = place / "sleep.so"
    if not made.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, _SLEEP], check=True)
    return made


def leap_back(file: Path) -> None:
    """Put the clock right under whoever runs by it."""
    file.write_text("+0")
