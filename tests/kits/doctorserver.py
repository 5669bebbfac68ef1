"""What answers in the doctor's tests: a small API server, its kubeconfig, the extender's health."""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
CONTAINERD = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
"""


class ApiServer:
    """A small API server: objects by path, rights, and its clock."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {"/version": {"gitVersion": "v1.33.13+k3s1"}}
        self.denied: set[str] = set()
        self.refuses = 0
        self.now = NOW
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = api.objects.get(self.path)
                self._answer(api.refuses or (200 if found else 404), found or {"message": "not found"})

            def do_POST(self) -> None:
                spec = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"]["resourceAttributes"]
                words = "/".join(filter(None, (f"{spec['verb']} {spec['resource']}", spec.get("subresource"))))
                self._answer(201, {"status": {"allowed": words not in api.denied}})

            def _answer(self, status: int, value: Mapping[str, Any]) -> None:
                body = json.dumps(value).encode()
                self.send_response_only(status)
                self.send_header("Date", format_datetime(api.now, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        """Close the port; may be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class Health:
    """What answers the extender's healthz."""

    posts: Mapping[str, Callable[[bytes], bytes]] = {}

    def __init__(self) -> None:
        self.well, self.words = True, "ok"

    def health(self) -> tuple[bool, str]:
        return self.well, self.words


def scheduler_kubeconfig(ca_pem: str) -> str:
    """Return a kubeconfig as k3s has one for its scheduler."""
    ca = base64.b64encode(ca_pem.encode()).decode()
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "local", "cluster": {"server": "https://127.0.0.1:6444", "certificate-authority-data": ca}}
        ],
        "users": [{"name": "user", "user": {"token": "t"}}],
        "contexts": [{"name": "Default", "context": {"cluster": "local", "user": "user"}}],
        "current-context": "Default",
    }
    return yaml.safe_dump(value)
