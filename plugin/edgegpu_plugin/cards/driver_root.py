"""What is below a driver's root (libraries, the table of MIG capabilities), and which users could replace it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

_MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_to_others(path: Path, *, below: Path = Path("/")) -> str:
    """Return why a user other than root could replace the file at a path; empty when only root could.

    Every folder on the path, every link that is followed and the file itself must belong to root (or to the user of
    this process), and no other user may be able to write to them. What only root can change does not change between
    this check and a mount by another process.

    Args:
        path: a path below the folder `below`; its links are followed.
        below: a folder that the configuration of this process names; it and its parents are not checked.

    Raises:
        OSError: there is nothing at the path, or it cannot be checked.
    """
    return _walk(path, below, _open_place)[1]


def resolved(path: Path, *, below: Path) -> Path:
    """Return a path without links, as it is where the driver's root is `/`.

    Raises:
        OSError: there is nothing at the path, or its links lead in a circle.
    """
    return _walk(path, below, lambda _at, _found: "")[0]


def _walk(path: Path, below: Path, problem_of: Callable[[Path, os.stat_result], str]) -> tuple[Path, str]:
    """Go a path and its links; return its end, or the first place that has a problem, and that. Raises OSError."""
    at, left, links = below, list(path.relative_to(below).parts), 0
    while left:
        name = left.pop(0)
        if name == "..":
            at = at.parent
            continue
        at = at / name
        found = at.lstat()
        if problem := problem_of(at, found):
            return at, problem
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links on the way to {path}")
            at, parts = _followed(at, below)
            left = [*parts, *left]
    return at, ""


def _open_place(at: Path, found: os.stat_result) -> str:
    """Return why a user other than root could replace what is at a place; the mode of a link says nothing."""
    if found.st_uid not in {0, os.geteuid()}:
        return f"{at} belongs to uid {found.st_uid}"
    if _can_hold(found.st_mode) and found.st_mode & _OTHERS_WRITE:
        return f"{at} can be written by others than root (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _followed(link: Path, below: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder in which a link's target begins, and the rest of the target.

    An absolute target is one of the driver's root, with that as `/`, as the driver's own programs follow it. What is
    not there is one of this machine.
    """
    target = link.readlink()
    if not target.is_absolute():
        return link.parent, target.parts
    if target.is_relative_to(below):
        return below, target.relative_to(below).parts
    inside = Path(*target.parts[1:])
    start = below if os.path.lexists(below / inside) else Path("/")
    return start, inside.parts


def _can_hold(mode: int) -> bool:
    """Return whether writing changes what others read there; writing to a socket or a device does not."""
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
)
"""The folders in which distributions put the driver's libraries."""


def mig_caps(root: Path, minor: int, gi: int, ci: int) -> tuple[int, ...]:
    """Return the minor numbers of the capability devices that open a MIG device: its GPU and its compute instance.

    Args:
        root: the driver's root.
        minor: the minor number of the GPU's device node.
        gi: NVML's id of the GPU instance.
        ci: NVML's id of the compute instance in it.
    """
    wanted = (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access")
    try:
        lines = (root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    except OSError:
        return ()
    table = {name: int(number) for name, _, number in (line.partition(" ") for line in lines) if number.isdigit()}
    return tuple(table[name] for name in wanted if name in table)
