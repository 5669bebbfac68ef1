"""What somebody reaches who runs code of their own where this runs: files, processes, other paths. Prints JSON.

    intruder.py FOLDER PID...

It runs on the box's own Python, in the place of a unit's program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

FIXED = ("ca", "keys", "tls", "broker", "release", "controller.yaml")
"""What nobody but its owner's own processes may put another thing in the place of."""


def worked(attempt: Callable[[], object]) -> bool:
    """Whether an attempt brought something."""
    try:
        return bool(attempt())
    except OSError:
        return False


def files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path) / name for name in names)


def readable(folder: Path) -> list[str]:
    """Return the files of a folder from which a byte comes."""
    return sorted(str(one.relative_to(folder)) for one in files(folder) if worked(partial(first_byte, one)))


def first_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1)


def writable(folder: Path) -> list[str]:
    """Return the files that open for writing, and the folders, with a / at their end, that take a new file."""
    found = [str(one.relative_to(folder)) for one in files(folder) if worked(partial(opened, one))]
    for path, _, _ in os.walk(folder):
        if worked(partial(made, Path(path) / "intruder")):
            found.append(f"{Path(path).relative_to(folder)}/")
    return sorted(found)


def opened(path: Path) -> bool:
    os.close(os.open(path, os.O_WRONLY))
    return True


def made(path: Path) -> bool:
    path.touch()
    path.unlink()
    return True


def replaceable(folder: Path) -> list[str]:
    """Return what could be moved away, and another thing put in its place."""
    return [name for name in FIXED if worked(partial(moved, folder / name))]


def moved(path: Path) -> bool:
    away = path.with_name("intruder")
    path.rename(away)
    away.rename(path)
    return True


def reached(pid: str, folder: Path) -> list[str]:
    """Return what of a process is reached by /proc."""
    proc = Path("/proc", pid)
    attempts: dict[str, Callable[[], object]] = {
        "environ": lambda: first_byte(proc / "environ"),
        "fd": lambda: list((proc / "fd").iterdir()),
        "cwd": (proc / "cwd").readlink,
        "root": lambda: readable(proc / "root" / folder.relative_to("/")),
        "mem": lambda: memory(proc),
    }
    return [name for name, attempt in attempts.items() if worked(attempt)]


def memory(proc: Path) -> bytes:
    start = int((proc / "maps").read_text().partition("-")[0], 16)
    with (proc / "mem").open("rb", buffering=0) as file:
        file.seek(start)
        return file.read(16)


def main() -> None:
    folder, others = Path(sys.argv[1]), sys.argv[2:]
    mine = {str(os.getpid()), str(os.getppid())}
    seen = []
    with suppress(OSError):
        seen = [one.name for one in Path("/proc").iterdir() if one.name.isdigit() and one.name not in mine]
    found = {
        "read": readable(folder),
        "written": writable(folder),
        "replaced": replaceable(folder),
        "seen": sorted(set(seen) & set(others)),
        "reached": {pid: names for pid in others if (names := reached(pid, folder))},
    }
    sys.stdout.write(json.dumps(found))


main()
