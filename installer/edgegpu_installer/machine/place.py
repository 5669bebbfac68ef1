"""Where a file really lies, behind links, with its mode and owner."""

import os
import stat
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgegpu_installer.layout import Layout

_MOST_LINKS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A file's own path, mode and owner; the defaults are those of a file that is not there yet."""

    path: str = ""
    mode: int = 0o644
    owner: tuple[int, int] | None = None


def read_place(layout: Layout, path: str) -> Place:
    """Return where a file of the box lies, a link followed to its end."""
    for _ in range(_MOST_LINKS):
        if not layout.at(path).is_symlink():
            break
        target = layout.at(path).readlink()
        path = os.path.normpath(PurePosixPath(path).parent / target)
    try:
        info = layout.at(path).stat()
    except OSError:
        return Place(path)
    return Place(path, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid))
