"""The doctor's client of the API server: one whose certificate is of another cluster's CA is named as such."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from kits.cert import DAY, NOW, Authority, Pair, server_context

from edgegpu_agent.cli.clients.doctor import DoctorKubeClient
from edgegpu_base.kube import ApiAccess
from edgegpu_installer.doctor.probe import ProbeError

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def server(pair: Pair) -> Iterator[str]:
    """Serve HTTPS with a certificate; yields the URL."""
    with ThreadingHTTPServer((HOST, 0), Answer) as https:
        https.socket = server_context(pair).wrap_socket(https.socket, server_side=True)
        threading.Thread(target=https.serve_forever, daemon=True).start()
        yield f"https://{HOST}:{https.server_address[1]}"
        https.shutdown()


def asked(url: str, ca: Authority) -> int:
    return DoctorKubeClient(ApiAccess(server=url, ca_pem=ca.pem, token="t")).get("/version").status  # noqa: S106


def test_an_api_server_of_another_cluster() -> None:
    ours, others = Authority("k3s-server-ca@1"), Authority("k3s-server-ca@2")
    with server(others.pair("k3s", hosts=(HOST,))) as url:
        assert asked(url, others) == 200
        with pytest.raises(ProbeError) as wrong:
            asked(url, ours)
    assert "is of another cluster" in wrong.value.text
    assert wrong.value.remedy.startswith("sudo edgegpu install")


def test_a_certificate_that_has_expired_is_no_other_cluster() -> None:
    ours = Authority("k3s-server-ca@1")
    expired = ours.pair("k3s", hosts=(HOST,), start=NOW - 3 * DAY, life=dt.timedelta(days=1))
    with server(expired) as url, pytest.raises(ProbeError) as wrong:
        asked(url, ours)
    assert "cannot trust the API server" in wrong.value.text
    assert "systemctl status" in wrong.value.remedy
