"""What the agent says of itself on a Unix socket, as the plugin does: JSON over HTTP, read by the command line."""

import contextlib
import logging
import socket
import socketserver
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from edgegpu_agent.acts.act import ActStop
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)

SOCKET_NAME = "agent.sock"
"""In the run folder; mode 0600."""

_LIMIT = 50
_PROBE_S = 1.0


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    status: Callable[[], BaseModel]
    history: Callable[[int], BaseModel]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_GET(self) -> None:
        """Answer /v1/status, or /v1/journal with `limit` lines."""
        asked = urlsplit(self.path)
        try:
            match asked.path:
                case "/v1/status":
                    self._answer(200, self.server.status().model_dump_json().encode())
                case "/v1/journal":
                    limit = parse_qs(asked.query).get("limit", [str(_LIMIT)])[0]
                    count = int(limit) if limit.isdigit() else _LIMIT
                    self._answer(200, self.server.history(count).model_dump_json().encode())
                case _:
                    self._answer(404, b'{"error": "ask for /v1/status or /v1/journal"}')
        except ActStop:
            self._answer(503, b'{"error": "the agent ends"}')
        except OSError as error:
            _LOG.debug("a reader has gone: %s", error)
        except Exception:  # noqa: BLE001  (a request's border)
            _LOG.exception("cannot answer %s", asked.path)
            self._answer(500, b'{"error": "see the log of edgegpu-agent"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """Name the peer, which has no address on a Unix socket."""
        return "local"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Log requests where debugging wants them."""
        _LOG.debug(format, *args)


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
