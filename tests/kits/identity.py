"""A cloud for the identity's tests: a real HTTPS server with a CA of its own, which answers as the contract says."""

from __future__ import annotations

import datetime as dt
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from kits.cert import NOW, YEAR, Authority, server_context

from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.wire import from_base64

DEVICE = "k3f9x2m7q1w8e5r4"
NAME = "hall-1"


@dataclass
class Cloud:
    """What the server knows; a test changes it while it serves."""

    servers: Authority = field(default_factory=lambda: Authority("servers"))
    boxes: Authority = field(default_factory=lambda: Authority("boxes"))
    root: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    controller: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    tokens: dict[str, str] = field(default_factory=lambda: {"good": ""})
    """Each with the request that it was spent for."""
    approval: bool = False
    cut: int = 0
    """So many answers are thrown away after they were made."""
    status: int = 0
    """Answer this instead, with no body."""
    life: dt.timedelta = YEAR
    start: dt.datetime = NOW - dt.timedelta(hours=1)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    enrolments: int = 0
    signers: dict[str, str] = field(default_factory=dict)
    broker: dict[str, Any] = field(default_factory=lambda: {"host": "127.0.0.1", "port": 8883})
    url: str = ""

    def enrol(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        request = body["request"]
        if request in self.answers:
            return 200, self.answers[request]
        if body["token"] not in self.tokens:
            return 403, {"code": "TOKEN_UNKNOWN", "text": "there is no such token", "remedy": "take the line anew"}
        if self.tokens[body["token"]]:
            return 403, {"code": "TOKEN_USED", "text": "it was used", "remedy": "ask for another"}
        if self.approval:
            return 202, {"state": "waiting", "retry_s": 0.05}
        self.tokens[body["token"]] = request
        self.enrolments += 1
        csr = x509.load_pem_x509_csr(body["csr"].encode())
        self.signers[DEVICE] = body["sign_key"]
        keys = next_link(self.root, keys=[public_text(self.controller)])
        self.answers[request] = {
            "device": DEVICE,
            "name": NAME,
            "enrolment": self.enrolments,
            "certificate": self.boxes.sign(csr.public_key(), DEVICE, start=self.start, life=self.life),
            "broker": self.broker,
            "broker_ca": self.servers.pem,
            "root": public_text(self.root),
            "keys": [keys.model_dump()],
            "server_time": int(NOW.timestamp()),
        }
        return 200, self.answers[request]

    def renew(self, raw: bytes, signature: str) -> tuple[int, dict[str, Any]]:
        body = json.loads(raw)
        public = Ed25519PublicKey.from_public_bytes(from_base64(self.signers[body["device"]]))
        public.verify(from_base64(signature), b"edgegpu renew 1\n" + raw)
        if body["csr"] not in self.answers:
            csr = x509.load_pem_x509_csr(body["csr"].encode())
            made = self.boxes.sign(csr.public_key(), DEVICE, start=self.start, life=self.life)
            self.answers[body["csr"]] = {"certificate": made, "server_time": int(NOW.timestamp())}
        return 200, self.answers[body["csr"]]


class _Handler(BaseHTTPRequestHandler):
    cloud: Cloud

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/ca.crt" else 404, self.cloud.servers.pem.encode())

    def do_POST(self) -> None:
        cloud = self.cloud
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        cloud.asked.append((self.path, json.loads(raw)))
        if cloud.status:
            self._answer(cloud.status, b"")
            return
        if self.path == "/v1/enrol":
            status, answer = cloud.enrol(json.loads(raw))
        else:
            status, answer = cloud.renew(raw, self.headers["Edgegpu-Signature"])
        if cloud.cut:
            cloud.cut -= 1
            self.close_connection = True
            return
        self._answer(status, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class CloudServer:
    """The server over a `Cloud`; `start` and `life` are those of its own certificate."""

    def __init__(self, cloud: Cloud, *, start: dt.datetime = NOW - YEAR, life: dt.timedelta = 2 * YEAR) -> None:
        context = server_context(cloud.servers.pair("cloud", hosts=["127.0.0.1"], start=start, life=life))
        handler = type("Handler", (_Handler,), {"cloud": cloud})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hangs up in the middle is meant
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        cloud.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
