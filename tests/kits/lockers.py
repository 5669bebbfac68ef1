"""Another user of the machine, without root, who locks each file and folder that they can open."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = 65_534
"""`nobody`, who owns nothing."""

_LOCKER = """
import fcntl, os, sys
user = int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)  # here: the interpreter itself may lie where this user may not read
kept = []
for folder, _, names in os.walk(sys.argv[1]):
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            kept.append(handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print(path)
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass
print("", flush=True)
sys.stdin.read()
"""


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a new folder that every user can enter; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def locked_by_another_user(folder: Path) -> Iterator[list[str]]:
    """Let another user hold the locks of all that they can open below a folder; yield the paths, relative to it."""
    if os.geteuid() != 0:
        pytest.skip("to be another user takes root")
    command = [sys.executable, "-I", "-c", _LOCKER, str(folder), str(USER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        paths = []
        while line := locker.stdout.readline().rstrip("\n"):
            paths.append(str(Path(line).relative_to(folder)))
        try:
            assert locker.poll() is None
            yield paths
        finally:
            locker.stdin.close()
