"""Where a scheduler says how it is: k3s up to 1.22 gives it no port with TLS."""

from __future__ import annotations

import base64
import http.server
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kits.facts import FakeBox

from edgegpu_installer.cluster.https import TlsTarget
from edgegpu_installer.verify.probe import OLD_SCHEDULER, SCHEDULER, answering, configured, schedulers_of, unready
from edgegpu_installer.verify.verify import ExtenderCaller, SchedulerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def served() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_the_first_that_answers_is_asked(served: str, silent: str) -> None:
    way = TlsTarget(context=None, timeout_s=5)
    assert answering((served, silent), way) == served
    assert answering((silent, served), way) == served
    assert answering((silent, silent + "/last"), way) == silent + "/last"
    assert answering((silent,), way) == silent


class Readyz(http.server.BaseHTTPRequestHandler):
    """A scheduler's port whose /readyz answers as its server is told."""

    def do_GET(self) -> None:
        status, body = self.server.answer if self.path == "/readyz?verbose" else (404, b"")  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n", ""),
        (404, b"404 page not found\n", ""),
        (
            500,
            b"[+]shutdown ok\n[-]sched-handler-sync failed: handlers are not fully synchronized\nreadyz check failed\n",
            "/readyz answers 500: sched-handler-sync failed: handlers are not fully synchronized",
        ),
        (503, b"", "/readyz answers 503"),
    ],
)
def test_a_scheduler_that_cannot_place_pods_yet_says_so(status: int, body: bytes, words: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Readyz) as server:
        server.answer = (status, body)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert unready(f"http://127.0.0.1:{server.server_port}", TlsTarget(context=None, timeout_s=5)) == words
        finally:
            server.shutdown()
            thread.join()


def test_a_schedulers_port_that_is_silent_is_not_ready(silent: str) -> None:
    assert unready(silent, TlsTarget(context=None, timeout_s=5)).startswith(silent)


CERT = base64.b64encode(b"PEM").decode()
URL = "https://127.0.0.1:8787"
GO_NAMES = {  # of /configz up to Kubernetes 1.35
    "LeaderElection": {"LeaderElect": True},
    "Extenders": [
        {"URLPrefix": URL, "TLSConfig": {"CertData": CERT}},
        {"URLPrefix": "http://other", "TLSConfig": None},
    ],
}
V1_NAMES = {  # from 1.36 on
    "leaderElection": {"leaderElect": True},
    "extenders": [{"urlPrefix": URL, "tlsConfig": {"certData": CERT}}, {"urlPrefix": "http://other"}],
}


@pytest.mark.parametrize("config", [GO_NAMES, V1_NAMES], ids=["1.35", "1.36"])
def test_a_schedulers_extenders_are_read_by_the_names_of_each_version(config: dict[str, Any]) -> None:
    callers = (ExtenderCaller(URL, "PEM"), ExtenderCaller("http://other", ""))
    assert configured(config) == SchedulerStatus("", callers, elects=True)


@pytest.mark.parametrize("config", [{}, {"Extenders": None}, {"extenders": [], "leaderElection": {}}])
def test_a_scheduler_without_extenders(config: dict[str, Any]) -> None:
    assert configured(config) == SchedulerStatus("", (), elects=False)


@pytest.mark.parametrize(
    ("version", "places"),
    [
        ("v1.21.14+k3s1", (SCHEDULER, OLD_SCHEDULER)),
        ("v1.23.17+k3s1", (SCHEDULER, OLD_SCHEDULER)),
        ("v1.24.17+k3s1", (SCHEDULER,)),
        ("v1.33.13+k3s1", (SCHEDULER,)),
    ],
)
def test_only_an_old_one_is_asked_in_the_clear(tmp_path: Path, version: str, places: tuple[str, ...]) -> None:
    box = FakeBox(tmp_path)
    box.k3s(version=version)
    k3s = box.facts().k3s
    assert k3s is not None
    assert schedulers_of(k3s) == places
