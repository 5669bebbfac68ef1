"""A socket as another device plugin's, on which this process answers."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served_socket(folder: Path, name: str) -> Iterator[None]:
    """Listen on a socket in a folder whose path may be too long for one; at the end it is left behind, unserved."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(f"/proc/self/fd/{opened}/{name}")
            server.listen()
            yield
    finally:
        os.close(opened)
