"""Entries of the file system: read, staged, replaced by one rename and synced to the disk."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgegpu_base import files
from edgegpu_base.files import sync_folder
from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout

NEW, OLD = "new", "old"
FILE, LINK, NOTHING = "f", "l", "-"
_MOST_LINKS = 8


@dataclass(frozen=True, slots=True)
class PathEntry:
    """What is at a path: a file (`content`), a link (`link_to`), or nothing; `mode` is a file's."""

    content: bytes | None = None
    link_to: str | None = None
    mode: int = 0
    uid: int = 0
    gid: int = 0

    @property
    def kind(self) -> str:
        """The journal's letter for the kind of entry."""
        if self.content is not None:
            return FILE
        return LINK if self.link_to is not None else NOTHING


def read_entry(path: Path) -> PathEntry:
    """Return the entry at a path.

    Raises:
        InstallError: a folder, device or socket is at the path, or it cannot be read.
    """
    try:
        info = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return PathEntry()
    except OSError as error:
        raise InstallError(f"cannot read {path}: {error.strerror}") from error
    try:
        if stat.S_ISLNK(info.st_mode):
            return PathEntry(link_to=os.readlink(path), uid=info.st_uid, gid=info.st_gid)  # noqa: PTH115  (Path tidies it up)
        if stat.S_ISREG(info.st_mode):
            return PathEntry(path.read_bytes(), mode=stat.S_IMODE(info.st_mode), uid=info.st_uid, gid=info.st_gid)
    except OSError as error:
        raise InstallError(f"cannot read {path}: {error.strerror}") from error
    raise InstallError(f"cannot change {path}: it is neither a file nor a link", "move it away")


def wanted(change: FileChange) -> PathEntry:
    """Return the entry that a change wants at its path."""
    uid, gid = change.owner or (os.geteuid(), os.getegid())
    if change.content is not None:
        return PathEntry(change.content, mode=change.mode, uid=uid, gid=gid)
    return PathEntry(link_to=change.link_to, uid=uid, gid=gid) if change.link_to is not None else PathEntry()


def beside(path: Path, what: str) -> Path:
    """Return the hidden name beside a path for its new or old content; programs that read the folder skip it."""
    return path.with_name(f".{path.name}.edgegpu-{what}")


def create(path: Path, entry: PathEntry) -> None:
    """Replace whatever is at a path by an entry and sync it, but not the folder."""
    path.unlink(missing_ok=True)
    if entry.link_to is not None:
        path.symlink_to(entry.link_to)
        os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    elif entry.content is not None:
        files.create(path, entry.content, mode=entry.mode, owner=(entry.uid, entry.gid))


def stage(path: Path, entry: PathEntry) -> None:
    """Write the new content beside its path, and hard-link the old one there: a rollback then needs no free space.

    Raises:
        InstallError: no free space, a read-only file system, no such folder.
    """
    with _said(f"cannot write beside {path}"):
        if entry.kind != NOTHING:
            create(beside(path, NEW), entry)
        beside(path, OLD).unlink(missing_ok=True)
        if os.path.lexists(path):
            os.link(path, beside(path, OLD), follow_symlinks=False)
        sync_folder(path.parent)


def swap(path: Path, entry: PathEntry) -> None:
    """Replace what is at a path by what was staged for it, in one rename, and sync the folder.

    Raises:
        InstallError: the path cannot be replaced.
    """
    with _said(f"cannot replace {path}"):
        if entry.kind == NOTHING:
            path.unlink(missing_ok=True)
        else:
            beside(path, NEW).replace(path)
        sync_folder(path.parent)


def write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace one of our files by one rename.

    Raises:
        InstallError: the file cannot be written.
    """
    with _said(f"cannot write {path}"), files.open_folder(path.parent) as folder:
        files.replace_in(folder, path.name, content, mode=mode, temp=f"{path.name}.new")


def make_folder(path: Path, *, mode: int = 0o755) -> None:
    """Make one folder and sync its parent; a folder that exists is left as it is.

    Raises:
        InstallError: the folder cannot be made.
    """
    with _said(f"cannot make the folder {path}"):
        if not path.is_dir():
            path.mkdir()
            path.chmod(mode)  # whatever the umask
            sync_folder(path.parent)


@contextmanager
def _said(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InstallError(f"{what}: {error.strerror}", "free space, or make the file system writable") from error


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A file's path behind all links, its mode and owner; the defaults are for a file that does not exist yet."""

    path: str = ""
    mode: int = 0o644
    owner: tuple[int, int] | None = None


def read_location(layout: Layout, path: str) -> FileLocation:
    """Return a file's location on the box, with links followed to their end."""
    for _ in range(_MOST_LINKS):
        if not layout.at(path).is_symlink():
            break
        target = layout.at(path).readlink()
        path = os.path.normpath(PurePosixPath(path).parent / target)
    try:
        info = layout.at(path).stat()
    except OSError:
        return FileLocation(path)
    return FileLocation(path, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid))
