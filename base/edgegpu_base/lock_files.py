"""Lock files that their owner alone can lock: whoever can open a file or a folder, if only to read, can lock it."""

import fcntl
import os
import stat
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OTHERS = 0o077


def open_lock(path: Path) -> int:
    """Open a lock file, made where it is missing, and return its descriptor; no other user can open it from then on.

    Raises:
        OSError: it cannot be opened, or it is no regular file.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) and mode & _OTHERS:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path} is not a regular file")


def try_lock(descriptor: int) -> bool:
    """Take an open file's lock, if no other process has it, and return whether it was taken."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_place(descriptor: int, path: Path) -> bool:
    """Return whether an open lock file is the one at its path: who had the lock before may have removed the file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
