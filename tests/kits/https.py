"""The HTTPS of a controller on a free port, with a small bundle, and who asks it."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3
from kits.enrol import Clock, Office, office

from edgegpu_cloud.http.app import make_app
from edgegpu_cloud.http.guard import BODY_MAX_S, WRITE_MAX_S
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.server import HttpsServer, ServerLimits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """#!/bin/sh
set -eu
BASE_URL='@EDGEGPU_URL@'
main() { echo "$BASE_URL|$#|$*|${EDGEGPU_TOKEN-}"; }
{ main "$@"; }
"""
ARCHIVE = "edgegpu-0.1.0-linux-amd64.tar.xz"


@dataclass
class Served:
    here: Office
    url: str
    port: int
    pool: urllib3.PoolManager
    server: HttpsServer
    bundle: Path

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        return self.pool.request("GET", self.url + path, headers=headers, retries=False)

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.pool.request("POST", self.url + path, body=data, headers=headers, retries=False)
        return answer.status, json.loads(answer.data)


def make_bundle(folder: Path) -> Path:
    folder.mkdir()
    files = {"install.sh": SCRIPT.encode(), "uninstall.sh": b"#!/bin/sh\n", ARCHIVE: b"0123456789" * 1_000}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    (folder / "secret.key").write_text("secret")
    return folder


@contextmanager
def serving(
    folder: Path,
    *,
    patience: ServerLimits | None = None,
    body_s: float = BODY_MAX_S,
    write_s: float = WRITE_MAX_S,
) -> Iterator[Served]:
    # The machine's time: its certificates are checked by who asks, and boxes' by `doctor`.
    here = office(folder / "cloud", clock=Clock(time.time()), names=["127.0.0.1", "localhost"])
    release = BundleFolder(make_bundle(folder / "bundle"), "https://cloud.example:8443")
    ca = here.layout.ca_cert("servers").read_text()
    app = make_app(here.desk, release, ca_pem=ca, clock=here.clock, body_s=body_s, write_s=write_s)
    server = HttpsServer(
        app,
        host="127.0.0.1",
        port=0,
        cert=here.layout.cert("https"),
        key=here.layout.key("https"),
        patience=patience,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pool = urllib3.PoolManager(ca_certs=str(here.layout.ca_cert("servers")), timeout=30)
    url = f"https://127.0.0.1:{server.port}"
    try:
        yield Served(here, url, server.port, pool, server, release.folder)
    finally:
        pool.clear()
        server.stop()
        thread.join(30)
        here.store.close()
        assert not thread.is_alive()
