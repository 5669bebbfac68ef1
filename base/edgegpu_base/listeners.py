"""Who listens on a Unix socket, by its credentials: a process that has ended leaves the socket's name behind."""

import errno
import socket
import struct
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")

UNSEEN = 0
"""What stands for the pid of a process that listens and cannot be seen: its queue is full, its
socket is of another type (MPS's control daemon has packets), or it is of another namespace."""


def listener(path: Path | str, *, timeout_s: float = 1.0) -> int | None:
    """Return the pid of the process that listens on a socket, `UNSEEN` where it cannot be told; None when none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(str(path))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except (TimeoutError, BlockingIOError):
            return UNSEEN
        except OSError as error:
            return UNSEEN if error.errno == errno.EPROTOTYPE else None
        pid: int = _CREDENTIALS.unpack(credentials)[0]
        return pid
