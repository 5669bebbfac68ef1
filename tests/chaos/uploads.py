"""The host that archives of logs are put to; its ledger is what has come, whatever was answered."""

from __future__ import annotations

import hashlib
import random
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_FAULTS = 0.15


class _Handler(BaseHTTPRequestHandler):
    uploads: Uploads

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.rpartition("/")[2].partition(".")[0]
        if self.uploads.took(name, hashlib.sha256(body).hexdigest()):
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who is killed in the middle is meant."""


class Uploads:
    """HTTPS at `host`; every seventh archive is taken, and the connection cut before the answer."""

    def __init__(self, ledger: Path, *, cert: Path, key: Path, rng: random.Random, host: str) -> None:
        self._ledger = ledger.open("a", buffering=1)
        self._rng = rng
        self._lock = threading.Lock()
        self.faulty = True
        self.cut = 0
        self.taken: dict[str, int] = {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        handler: Any = type("Handler", (_Handler,), {"uploads": self})
        self._server = _Server((host, 0), handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://{host}:{self._server.server_address[1]}/logs/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def took(self, name: str, digest: str) -> bool:
        """Write it down; False where its answer shall be lost."""
        with self._lock:
            self._ledger.write(f"{name} {digest}\n")
            self.taken[name] = self.taken.get(name, 0) + 1
            lost = self.faulty and self._rng.random() < _FAULTS
            self.cut += lost
            return not lost

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._ledger.close()
