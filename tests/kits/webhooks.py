"""A receiver of the controller's messages about alerts, on a socket of this machine."""

from __future__ import annotations

import json
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from kits.cert import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "a secret of sixteen and more"  # noqa: S105  (a test's)


@dataclass
class Receiver:
    """A receiver of messages: answers with a status, moves, or drips bytes."""

    url: str = ""
    ca: str = ""
    status: int = 204
    drips: bool = False
    got: list[tuple[dict[str, str], str]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, *args: Any, receiver: Receiver) -> None:  # noqa: ANN401  (the base class's own)
        self.receiver = receiver
        super().__init__(*args)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.receiver.status)
        self.send_header("Location", "https://127.0.0.1:1/else")
        self.send_header("Content-Length", "1000000" if self.receiver.drips else "0")
        self.end_headers()
        while self.receiver.drips and not self.receiver.hold.wait(0.1):
            self.wfile.write(b"x")
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:  # noqa: ANN401  (the base class's own)
        return


@contextmanager
def receiving(folder: Path, host: str = "127.0.0.1") -> Iterator[Receiver]:
    authority = Authority("receivers")
    pair = authority.pair("127.0.0.1", hosts=[host, "localhost"])
    for name, text in (("hook.crt", pair.cert), ("hook.key", pair.key), ("hook-ca.crt", authority.pem)):
        (folder / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "hook.crt", folder / "hook.key")
    receiver = Receiver(ca=str(folder / "hook-ca.crt"))
    server = ThreadingHTTPServer((host, 0), partial(_Handler, receiver=receiver))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that refuses is what is tested
    server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"https://{host}:{server.server_address[1]}/hook?of=edgegpu"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
