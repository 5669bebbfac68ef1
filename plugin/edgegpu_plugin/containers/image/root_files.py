"""The files of a running container, read from outside; their author may have laid them out as traps."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_MOST_LINKS = 40
_MOST_STEPS = 1024
"""Parts of a path, with those of all links on the way."""
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ContainerRoot:
    """The root folder of a container's process.

    Each part of a path is opened by itself and no link is followed by the kernel, so that no link leads out of the
    root, whatever is changed meanwhile. Only regular files are read, so that no FIFO and no device is opened. What
    lies on a file system that does not answer can still hold a call for ever: see `image_check.py`.
    """

    def __init__(self, root: Path) -> None:
        """Open the folder, as /proc/PID/root. Raises OSError: the process has ended."""
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def exists(self, path: str) -> bool:
        """Return whether something lies at a path of the container; links are followed within its root."""
        try:
            with self._at(path):
                return True
        except OSError:
            return False

    def read(self, path: str, *, most: int) -> bytes:
        """Return what a regular file holds, at most so many bytes of it.

        Raises:
            OSError: nothing lies there, or it is no regular file.
        """
        with self._at(path) as found:
            known = os.fstat(found)
            if not stat.S_ISREG(known.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", path)
            if known.st_size == 0:  # those of /proc say so too, and reading some of them does something
                return b""
            return read_all(os.open(f"/proc/self/fd/{found}", _READ), most=most)

    @contextmanager
    def _at(self, path: str) -> Iterator[int]:
        """Open what lies at a path, without reading it. Raises OSError."""
        with ExitStack() as opened:
            folders = [self._root]
            left = _parts(path)
            links = 0
            while left:
                name = left.pop()
                if name == "..":
                    del folders[max(1, len(folders) - 1) :]
                    continue
                at = os.open(name, _LOOK, dir_fd=folders[-1])
                opened.callback(os.close, at)
                if stat.S_ISLNK(os.fstat(at).st_mode):
                    links += 1
                    target = os.readlink("", dir_fd=at)
                    left += _parts(target)
                    if links > _MOST_LINKS or len(left) > _MOST_STEPS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if target.startswith("/"):
                        del folders[1:]
                else:
                    folders.append(at)
            yield folders[-1]


def read_all(descriptor: int, *, most: int) -> bytes:
    """Return what a file holds, at most so many bytes of it, and close it. Raises OSError."""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        parts: list[bytes] = []
        while (left := most - sum(map(len, parts))) > 0 and (part := file.read(min(left, 1 << 20))):
            parts.append(part)
    return b"".join(parts)


def _parts(path: str) -> list[str]:
    """Return the parts of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
