"""An HTTPS server with the cloud's own certificate: archives of logs are put there, releases lie there."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_cloud.layout import CloudLayout

_TURN_S = 0.02


@dataclass(slots=True)
class Web:
    """HTTPS by the cloud's own certificate: takes archives, and has releases."""

    folder: Path
    puts: list[str] = field(default_factory=list)
    url: str = ""

    def serve(self, layout: CloudLayout) -> ThreadingHTTPServer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(layout.cert("https"), layout.key("https"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, web=self))
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(_TURN_S,), daemon=True).start()
        return server


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, *args: Any, web: Web) -> None:  # noqa: ANN401  (the base class's own)
        self.web = web
        super().__init__(*args)

    def do_PUT(self) -> None:
        """Take an archive."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.web.puts.append(self.path)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Give a release."""
        body = (self.web.folder / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Stay quiet."""
