"""HTTP/1.0 over a Unix socket, by hand: http.client brings email and ssl, and a quarter of a command's start-up."""

import re
import socket as sockets
from pathlib import Path

_MOST_BYTES = 32 * 1024 * 1024
_CHUNK = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\b")
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


class NoHttpError(Exception):
    """What answers on the socket speaks no HTTP, or breaks off."""


def get(path: Path, target: str, *, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of a GET.

    Raises:
        OSError: nobody listens, no permission, or no answer within `timeout_s` of silence.
        NoHttpError: what answers is no HTTP, or not all of it.
    """
    with sockets.socket(sockets.AF_UNIX) as link:
        link.settimeout(timeout_s)
        link.connect(str(path))
        link.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = bytearray()
        while (chunk := link.recv(_CHUNK)) and len(answer) < _MOST_BYTES:
            answer += chunk
    return _parse(bytes(answer))


def _parse(answer: bytes) -> tuple[int, bytes]:
    """Read an answer that ends with its connection, as HTTP/1.0's do."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if status is None or not separator:
        raise NoHttpError("it does not begin as HTTP does")
    if length is not None and len(body) < int(length[1]):
        raise NoHttpError(f"it ends {int(length[1]) - len(body)} bytes early")
    return int(status[1]), body
