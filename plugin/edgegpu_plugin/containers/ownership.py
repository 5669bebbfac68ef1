"""Says whether anybody but root could put something else at a path that this process mounts or loads."""

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
    """Whether writing changes what others find there: a socket or a device is only spoken to."""
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
