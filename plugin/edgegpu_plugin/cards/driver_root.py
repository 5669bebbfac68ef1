"""Where things are below a driver's root (libraries, the table of MIG capabilities), and who could replace them."""

import os
import stat
from pathlib import Path

_MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_to_others(path: Path, *, below: Path = Path("/")) -> str:
    """Return who else could replace what is at a path, in words; empty when only root could.

    Every folder on the way, every link that is followed and the end itself have to belong to root (or to this very
    process, where that is another user's) and to be writable by nobody else. What only root can change does not change
    between this look and a mount by somebody else.

    Args:
        path: below the folder, links in it are followed.
        below: a folder that whoever configured this process has chosen; it and those above it are not looked at.

    Raises:
        OSError: there is nothing, or it cannot be looked at.
    """
    owners = {0, os.geteuid()}
    at, left, links = below, list(path.relative_to(below).parts), 0
    while left:
        name = left.pop(0)
        if name == "..":
            at = at.parent
            continue
        at = at / name
        found = at.lstat()
        if found.st_uid not in owners:
            return f"{at} belongs to uid {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links on the way to {path}")
            target = at.parent / at.readlink()
            at = next(start for start in (at.parent, below, Path("/")) if target.is_relative_to(start))
            left = [*target.relative_to(at).parts, *left]
        elif _can_hold(found.st_mode) and found.st_mode & _OTHERS_WRITE:
            return f"{at} can be written by others than root (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _can_hold(mode: int) -> bool:
    """Return whether writing changes what others find there: a socket or a device is only spoken to."""
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
)
"""Where distributions put the driver's libraries."""


def mig_caps(root: Path, minor: int, gi: int, ci: int) -> tuple[int, ...]:
    """Return the minor numbers of the capability devices that open a MIG device: its GPU and its compute instance.

    Args:
        root: the driver's root.
        minor: of the GPU's device node.
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
