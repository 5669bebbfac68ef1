"""What booted boxes need: the lab in a folder of its own, what is installed on them, their network around this run."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import boxkit
from lab.labrun import HERE, missing, run

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
BUNDLE, ENVIRONMENT = ROOT / "build/chaos/bundle", ROOT / "build/chaos/env"
"""Of this run alone: others may be made anew while boxes are installed from these."""

LAN = "10.89.0.1"
_BASE = ("base.tar.zst", "base.list")


@dataclass(frozen=True, slots=True)
class Chosen:
    """How many booted boxes there will be, and why there are no more; `why` is empty where that was chosen."""

    booted: int
    why: str = ""


def choose(asked: int | None) -> Chosen:
    """Decide how many there will be: one where nothing was asked for, none where this machine lacks something.

    Raises:
        SystemExit: it lacks something, and they were asked for, or this is CI.
    """
    if asked == 0:
        return Chosen(0, "--booted 0 was asked for")
    if not (lacks := _lacks()):
        return Chosen(1 if asked is None else asked)
    words = "; ".join(lacks)
    if asked is not None or os.environ.get("CI"):
        raise SystemExit(f"cannot boot a box: {words} (--booted 0 does without)")
    return Chosen(0, words)


def _lacks() -> list[str]:
    found = [*missing("box"), *missing("image")]
    done = run([HERE / "pack"], check=False, timeout_s=120)
    return found if done.returncode == 0 else [*found, done.stderr.strip()]


def is_here() -> bool:
    """Say whether this process is on the boxes' network."""
    with socket.socket() as sock:
        try:
            sock.bind((LAN, 0))
        except OSError:
            return False
    return True


def go_there(command: Sequence[str]) -> None:
    """Make what boxes are made of, then run a command on their network, in this process's place."""
    lab = Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108  (the lab's own)
    state = Path(os.environ.setdefault("BOX_STATE", str(lab / "chaos")))
    state.mkdir(parents=True, exist_ok=True)
    _alone(state)
    run([HERE / "box", "down"], timeout_s=120)  # of a run that was killed; the network goes with the last one
    if not (state / "base.img").exists():
        _base(state, lab / "state")
    if not (lab / "images/edgegpu-test.tar").exists():
        run([HERE / "glibc_image.sh"], timeout_s=60)
    run([ROOT / "tools/env", ENVIRONMENT], timeout_s=600)
    run(["env", "EDGEGPU_QUICK=1", ROOT / "tools/bundle", BUNDLE, ENVIRONMENT / "edgegpu"], timeout_s=600)
    os.execv(HERE / "box", [str(HERE / "box"), "lab", *command])  # noqa: S606  (the lab's script)


def _alone(state: Path) -> None:
    """Hold the folder until this run, in whatever program it goes on, has ended."""
    handle = os.open(state / "chaos.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"another run has its boxes in {state}: wait for it, or set EDGEGPU_LAB") from None
    os.set_inheritable(handle, True)  # noqa: FBT003  (os's own)


def _base(state: Path, others: Path) -> None:
    """Make the base disk; Debian's packages are those of the other boxes, where there are any."""
    if all((others / name).exists() for name in _BASE):
        for name in _BASE:
            shutil.copyfile(others / name, state / name)
    boxkit.build()


def back() -> list[str]:
    """Return the command line that starts this very program again."""
    return [sys.executable, *sys.argv]
