"""HTTP over a Unix socket."""

import http.client
import socket as sockets
from pathlib import Path

_MOST_BYTES = 32 * 1024 * 1024


class NoHttpError(Exception):
    """What answers on the socket speaks no HTTP, or breaks off."""


class _Connection(http.client.HTTPConnection):
    """The host name is only what the request says."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = sockets.socket(sockets.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get(path: Path, target: str, *, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of a GET.

    Raises:
        OSError: nobody listens, no permission, or no answer within `timeout_s` of silence.
        NoHttpError: what answers is no HTTP.
    """
    connection = _Connection(path, timeout_s)
    try:
        connection.request("GET", target)
        with connection.getresponse() as response:
            body, missing = response.read(_MOST_BYTES), response.length
    except http.client.HTTPException as error:
        raise NoHttpError(str(error)) from error
    finally:
        connection.close()
    if missing:
        raise NoHttpError(f"the answer ends {missing} bytes early")
    return response.status, body
