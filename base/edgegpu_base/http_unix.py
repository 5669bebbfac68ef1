"""HTTP between this machine's own programs, on Unix sockets: plugin and agent answer in JSON.

Server and client are written by hand. http.server costs a MiB; http.client imports email and ssl, a quarter of a
command's start-up.
"""

import contextlib
import itertools
import logging
import re
import socket
import socketserver
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.errors import EdgegpuError

_LOG = logging.getLogger(__name__)

_LONGEST_LINE = 1_000
_PROBE_S = 1.0
LOOK_S = 5.0
"""How often the server looks whether its socket is still there: who empties a run folder takes it away."""
_MOST_BYTES = 32 * 1024 * 1024
_CHANGES = ("PUT", "DELETE")
_MOST_HEADERS = 50
_LONGEST_BODY = 64 * 1024
_CHUNK = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\b")
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


class NoHttpError(Exception):
    """The answer on the socket is no HTTP, or incomplete."""


def get(path: Path, target: str, *, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of a GET.

    Raises:
        OSError: no process listens, no permission, or no data for `timeout_s`.
        NoHttpError: the answer is no HTTP, or incomplete.
    """
    return _exchange(path, f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode(), timeout_s)


def send(path: Path, request: "ChangeRequest", *, timeout_s: float) -> tuple[int, bytes]:
    """Send a request that changes something, and return status and body of the answer.

    Raises:
        OSError: no process listens, no permission, or no data for `timeout_s`.
        NoHttpError: the answer is no HTTP, or incomplete.
    """
    head = (
        f"{request.method} {request.target} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(request.body)}\r\n\r\n"
    )
    return _exchange(path, head.encode() + request.body, timeout_s)


def _exchange(path: Path, request: bytes, timeout_s: float) -> tuple[int, bytes]:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        link.connect(str(path))
        link.sendall(request)
        answer = bytearray()
        while (chunk := link.recv(_CHUNK)) and len(answer) < _MOST_BYTES:
            answer += chunk
    return _parse(bytes(answer))


def _parse(answer: bytes) -> tuple[int, bytes]:
    """Return status and body of an answer that ends with its connection, as in HTTP/1.0."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if status is None or not separator:
        raise NoHttpError("it does not begin as HTTP does")
    if length is not None and len(body) < int(length[1]):
        raise NoHttpError(f"it ends {int(length[1]) - len(body)} bytes early")
    return int(status[1]), body


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request: HTTP status and JSON."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A request that changes something: the method PUT or DELETE, the target (path and query), and a JSON body."""

    method: str
    target: str
    body: bytes = b""


class LocalServer:
    """An HTTP server on a socket of mode 0600, between `open` and `close`; `run` needs its own thread."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[str], Response],
        *,
        owner: str,
        remedy: str = "",
        change: Callable[[ChangeRequest], Response] | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        """Build the local server.

        Args:
            path: the socket's path; the socket of a dead process is replaced.
            answer: called with a request's target (path and query), on a thread for that request.
            owner: the program's name, for errors and the log.
            remedy: what to do if the folder cannot be written.
            change: called in the same way with a PUT or DELETE; None: nothing can be changed here.
            look_s: how often the server looks whether its socket is still there.
        """
        self._path, self._answer, self._owner, self._remedy = path, answer, owner, remedy
        self._change, self._look_s = change, look_s
        self._server: _Server | None = None
        self._stopping = False

    def open(self) -> "_Server":
        """Make the socket.

        Raises:
            EdgegpuError: another process answers there, or the folder cannot be written.
        """
        if _is_served(self._path):
            raise EdgegpuError(f"cannot make {self._path}: another {self._owner} answers there; stop it first")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")  # who finds the socket by its name finds it listening
            fresh.unlink(missing_ok=True)
            server = _Server(fresh, self._answer, self._change, self._owner)
            server.timeout = self._look_s
            fresh.chmod(0o600)
            fresh.replace(self._path)
        except OSError as error:
            remedy = f"; {self._remedy}" if self._remedy else ""
            raise EdgegpuError(f"cannot make {self._path}: {error}{remedy}") from error
        self._server = server
        return server

    def run(self) -> None:
        """Serve until `stop`, then remove the socket.

        Raises:
            EdgegpuError: the socket is not open yet, and cannot be opened.
        """
        server = self._server or self.open()
        try:
            while not self._stopping:
                server.handle_request()
                server = self._kept(server)
        finally:
            self.close()

    def _kept(self, server: "_Server") -> "_Server":
        """Return the server, on a socket made anew where the name of its own has been removed."""
        if self._stopping or self._path.exists():
            return server
        try:
            fresh = self.open()
        except EdgegpuError as error:  # tried again at the next look
            _LOG.warning("%s", error)
            return server
        _LOG.warning("%s was removed, and is there again", self._path)
        server.server_close()
        return fresh

    def close(self) -> None:
        """Remove the socket, the path first: once closed, the path may be another process's."""
        server, self._server = self._server, None
        if server is not None:
            self._path.unlink(missing_ok=True)
            server.server_close()

    def stop(self) -> None:
        """Make `run` end by shutting its listener down: by itself it would look up only every `look_s`."""
        self._stopping = True
        server = self._server
        if server is not None:
            with contextlib.suppress(OSError):  # closed already
                server.socket.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(
        self,
        path: Path,
        answer: Callable[[str], Response],
        change: Callable[[ChangeRequest], Response] | None,
        owner: str,
    ) -> None:
        self.answer, self.change, self.owner = answer, change, owner
        super().__init__(str(path), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    """The handler of one request, which reads only the first line of a GET: all clients are ours."""

    server: _Server
    timeout = 10

    def handle(self) -> None:
        """Answer one request."""
        with contextlib.suppress(OSError):  # a client that has gone or sends nothing gets no answer
            words = self.rfile.readline(_LONGEST_LINE).decode("latin-1").split()
            method, target = words[0] if words else "", words[1] if len(words) > 1 else ""
            said = self._changed(method, target) if method in _CHANGES else self._said(target)
            head = f"HTTP/1.0 {said.status} -\r\nContent-Type: application/json\r\nContent-Length: {len(said.body)}\r\n"
            self.wfile.write(head.encode() + b"\r\n" + said.body)

    def _changed(self, method: str, target: str) -> Response:
        change, body = self.server.change, self._body()
        if change is None:
            return Response(405, b'{"error": "nothing can be changed here"}')
        if body is None:
            return Response(400, b'{"error": "the body is too long, or ends early"}')
        return self._guarded(lambda: change(ChangeRequest(method, target, body)), target)

    def _body(self) -> bytes | None:
        """Return the body of a request; None when it is too long or incomplete."""
        head = b"\r\n".join(itertools.islice(iter(self._header, b""), _MOST_HEADERS))
        found = _LENGTH.search(head)
        length = int(found[1]) if found is not None else 0
        body = self.rfile.read(min(length, 2 * _LONGEST_BODY))  # what is left unread resets the connection
        return body if len(body) == length <= _LONGEST_BODY else None

    def _header(self) -> bytes:
        """Return the next line of the head; empty at its end."""
        return self.rfile.readline(_LONGEST_LINE).strip(b"\r\n")

    def _said(self, target: str) -> Response:
        return self._guarded(lambda: self.server.answer(target), target)

    def _guarded(self, answer: Callable[[], Response], target: str) -> Response:
        try:
            return answer()
        except Exception:  # noqa: BLE001  (a request's border)
            _LOG.exception("cannot answer %s", target)
            return Response(500, f'{{"error": "see the log of {self.server.owner}"}}'.encode())


def _is_served(path: Path) -> bool:
    """Return whether a living process answers on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError):
            return True  # it listens, but its queue is full
        except OSError:
            return False
        return True
