"""What the agent says of itself on a Unix socket, as the plugin does: JSON over HTTP, read by the command line."""

import contextlib
import logging
import socket
import socketserver
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from edgegpu_agent.acts.act import ActStop
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)

SOCKET_NAME = "agent.sock"
"""In the run folder; mode 0600."""

_LIMIT, _LONGEST = 50, 1_000
_PROBE_S = 1.0


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    status: Callable[[], BaseModel]
    history: Callable[[int], BaseModel]


class _Handler(socketserver.StreamRequestHandler):
    """Reads a request's first line and nothing else of it: http.server costs a MiB, and its readers are ours."""

    server: _Server
    timeout = 10

    def handle(self) -> None:
        """Answer /v1/status, or /v1/journal with `limit` lines."""
        words = self.rfile.readline(_LONGEST).decode("latin-1").split()
        target = words[1] if len(words) > 1 else ""
        try:
            status, body = self._answer(target)
        except ActStop:
            status, body = 503, b'{"error": "the agent ends"}'
        except Exception:  # noqa: BLE001  (a request's border)
            _LOG.exception("cannot answer %s", target)
            status, body = 500, b'{"error": "see the log of edgegpu-agent"}'
        head = f"HTTP/1.0 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with contextlib.suppress(OSError):  # who has gone wants no answer
            self.wfile.write(head.encode() + body)

    def _answer(self, target: str) -> tuple[int, bytes]:
        asked = urlsplit(target)
        match asked.path:
            case "/v1/status":
                return 200, self.server.status().model_dump_json().encode()
            case "/v1/journal":
                limit = parse_qs(asked.query).get("limit", [""])[0]
                return 200, self.server.history(int(limit) if limit.isdigit() else _LIMIT).model_dump_json().encode()
            case _:
                return 404, b'{"error": "ask for /v1/status or /v1/journal"}'


class LocalApi:
    """Serves the worker's answers under one path; `run` it on a thread of its own."""

    def __init__(self, path: Path, *, status: Callable[[], BaseModel], history: Callable[[int], BaseModel]) -> None:
        """Prepare it.

        Args:
            path: of the socket; one that a dead process left behind is replaced.
            status: answers /v1/status.
            history: answers /v1/journal, so many lines.
        """
        self._path, self._status, self._history = path, status, history
        self._server: _Server | None = None
        self._stopping = False

    def run(self) -> None:
        """Serve until `stop`, then take the socket away.

        Raises:
            PluginError: another process answers there, or the folder cannot be written.
        """
        server = self._open()
        try:
            while not self._stopping:
                server.handle_request()
        finally:
            self._path.unlink(missing_ok=True)
            server.server_close()

    def stop(self) -> None:
        """Let `run` end; it waits without a time limit, and a listener that is shut down wakes it."""
        self._stopping = True
        server = self._server
        if server is not None:
            with contextlib.suppress(OSError):  # closed already
                server.socket.shutdown(socket.SHUT_RDWR)

    def _open(self) -> _Server:
        if _is_served(self._path):
            raise PluginError(f"cannot make {self._path}: another edgegpu-agent answers there; stop it first")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            server = _Server(str(self._path), _Handler)
            self._path.chmod(0o600)
        except OSError as error:
            raise PluginError(f"cannot make {self._path}: {error}") from error
        server.status, server.history = self._status, self._history
        self._server = server
        return server


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError):
            return True  # it listens, but its queue is full
        except OSError:
            return False
        return True
