"""Atomic files: complete or absent, whatever happens while they are written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgegpu_base.errors import EdgegpuError

Owner = tuple[int, int]
"""A user's and a group's number."""


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or the machine after a power cut, finds the old content or the new.

    The folder is made if it is missing.

    Raises:
        EdgegpuError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_folder(path.parent) as folder:
            replace_in(folder, path.name, content.encode() if isinstance(content, str) else content, mode=mode)
    except OSError as error:
        raise EdgegpuError(f"cannot write {path}: {error.strerror or error}; check the folder and the disk") from error


def write_if_changed(path: Path, content: str | bytes, *, mode: int = 0o644) -> bool:
    """Write a file if its content differs, and return whether it was written.

    Raises:
        EdgegpuError: the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with suppress(OSError):  # a missing or unreadable file is written anew
        if read_at_once(path) == data:
            return False
    write_atomic(path, data, mode=mode)
    return True


def remove_placeholder(path: Path) -> None:
    """Remove the empty folder that containerd makes where a mount's source is missing; anything else stays.

    (`withMounts` in internal/cri/opts/spec_linux_opts.go, seen in 2.2. It is there where a pod that one version has
    admitted mounts a file that another version does not make.)

    Raises:
        OSError: it cannot be removed, as where it is not empty.
    """
    if path.is_dir() and not path.is_symlink():
        path.rmdir()


def open_at_once(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that is there, and wait for nobody who has a lease on it (`fcntl`, `F_SETLEASE`).

    The root of a container can take one on each file of root's that is mounted there, read-only too, and the kernel
    keeps whoever opens such a file waiting for 45 seconds.

    Raises:
        OSError: it cannot be opened; a `BlockingIOError` while somebody has a lease on it.
    """
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def read_at_once(path: Path, *, most: int = -1) -> bytes:
    """Return what a file holds, at most so many bytes of it, opened as `open_at_once` does. Raises OSError."""
    with os.fdopen(open_at_once(path), "rb") as file:
        return file.read(most)


def stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change when the file at a path does; for a link, those of its target. Raises OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Yield an open folder, which no other process can replace from then on. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Wait until a folder's entries are on the disk, without which a rename is lost. Raises OSError."""
    with open_folder(path) as folder:
        os.fsync(folder)


def create(name: str | Path, data: bytes, *, mode: int, owner: Owner | None = None, folder: int | None = None) -> None:
    """Make a new file and sync it, but not its folder's entry; other users cannot read it until it has its mode.

    Args:
        name: a path where nothing exists; no link is followed. It is relative to `folder` if that is given.
        data: the content.
        mode: the mode, whatever the umask.
        owner: the owner; None keeps this process's user.
        folder: the open folder of `name`.

    Raises:
        OSError: the file cannot be made, or something exists at the path.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        if owner is not None:
            os.fchown(handle, *owner)
        os.fchmod(handle, mode)  # after the owner, whose change clears the set-uid bits
        os.fsync(handle)


def replace_in(folder: int, name: str, data: bytes, *, mode: int, owner: Owner | None = None, temp: str = "") -> None:
    """Write a file into an open folder atomically; what has that name is replaced, and no link is followed.

    Args:
        folder: the open folder, from `open_folder`.
        name: the file's name in the folder.
        data: the content.
        mode: the mode, whatever the umask; until it is set, other users cannot read the file.
        owner: the owner; None keeps this process's user.
        temp: the name of the temporary file, if it must be known; one that a killed process left is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    new = temp or f".{name}.{os.urandom(4).hex()}.tmp"
    if temp:
        _unlink(folder, temp)
    try:
        create(new, data, mode=mode, owner=owner, folder=folder)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            _unlink(folder, new)
        raise
    os.fsync(folder)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
