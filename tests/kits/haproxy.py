"""A real HAProxy with the file that docs/deploy.md shows, web processes behind it, and clients of several addresses."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import yaml
from kits.cert import Authority
from kits.cloudcli import ok
from kits.mqtt import wait_for
from kits.people import PASSWORD
from kits.units import command

from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = Path(__file__).resolve().parents[2] / "docs/examples/haproxy.cfg"
CONSOLE = "edgegpu-cloud-console@.service"
DEBIANS = Path("/etc/haproxy/haproxy.cfg")
HOST = "127.0.0.1"
"""Where the proxy and the web processes are; clients come from other addresses of the loopback network."""
OWNER, STRANGER, PAST_IT = "127.0.0.5", "127.0.0.3", "127.0.0.4"
PERSON = "anna"
_LOG = "global\n  log stdout format raw local0\n"
_START_S = 120
CONNECTIONS = 20
_SLOW = {
    "http_req_rate(10s)": "http_req_rate(10m)",
    "timeout http-request 20s": "timeout http-request 5m",
    "sc_conn_cur(0) gt 200": f"sc_conn_cur(0) gt {CONNECTIONS}",
}
"""What a test's file has otherwise, so that its limits are reached on a machine that is slow."""
_SHOWS = "http-request set-header X-Edgegpu-Proxy"
SECRET = "the-line-of-the-secret-file-of-a-test"  # noqa: S105  (a test's)


def need_haproxy() -> str:
    """Return the program; without it the test is skipped, in CI it fails."""
    found = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no HAProxy: apt-get install haproxy")
    return found


def rendered(folder: Path, port: int, consoles: list[int]) -> str:
    """Return the file of the documents with the addresses and the folder of a test in their places."""
    text = FILE.read_text().replace("/etc/haproxy/", f"{folder}/").replace("bind :443 ", f"bind {HOST}:{port} ")
    text = text.replace("  #http-request set-header X-Edgegpu-Proxy LINE", f"  {_SHOWS} {SECRET}")
    for shipped, slow in _SLOW.items():
        assert shipped in text
        text = text.replace(shipped, slow)
    assert SECRET in text
    for number, console in enumerate(consoles, 1):
        text = text.replace(f" console-{number}:8444", f" {HOST}:{console}")
    assert not re.search(r":443 |:8444|/etc/haproxy", re.sub("(?m)^ *#.*", "", text)), text
    return text


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class ProxySite:
    """Two web processes of one folder behind HAProxy, and one person."""

    folder: Path
    work: Path
    port: int
    consoles: list[int]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    session: str = ""

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What HAProxy has written."""
        return (self.work / "haproxy.log").read_text()

    def start(self, console: int) -> None:
        """Start a web process as its unit does, and wait until it is ready."""
        words = [sys.executable, "-m", "edgegpu_cloud.cli.app", *command(CONSOLE, str(console))[1:]]
        with (self.work / f"console-{console}.log").open("ab") as log:
            env = {**os.environ, "EDGEGPU_CLOUD": str(self.folder)}
            self.processes[console] = subprocess.Popen(words, stdout=log, stderr=log, env=env)
        wait_for(lambda: self.is_ready(console), what=f"the console on {console} is ready", timeout_s=_START_S)

    def is_ready(self, console: int) -> bool:
        try:
            return self.ask("/readyz", at=console, session="").status == 200
        except OSError:
            return False

    def end(self) -> None:
        """End the web processes that are left, also one that stands still."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            end(process)

    def kill(self, console: int) -> None:
        """Kill a web process, as by `kill -9`."""
        process = self.processes.pop(console)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def handshake(self, source: str) -> ssl.SSLSocket | None:
        """Return a connection from an address to the proxy; None where the proxy has closed it."""
        with ExitStack() as stack, warnings.catch_warnings():
            # Python 3.11's wrap_socket leaves its socket open where the proxy has reset it before.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                link = stack.enter_context(socket.create_connection((HOST, self.port), 60, (source, 0)))
                secure = _trust().wrap_socket(link, server_hostname=HOST)
            except ConnectionError:
                return None
            stack.pop_all()
        if secure.version() is not None:
            return secure
        secure.close()  # it was reset before the handshake
        return None

    def connection(self, *, at: int = 0, source: str = OWNER) -> http.client.HTTPSConnection:
        """Return a connection from an address to the proxy, or to the port of a web process."""
        return http.client.HTTPSConnection(
            HOST, at or self.port, timeout=60, source_address=(source, 0), context=_trust()
        )

    def ask(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        at: int = 0,
        source: str = OWNER,
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, with a form a POST; `session`: the cookie, by default that of the person."""
        cookie = self.session if session is None else session
        more = {**(headers or {}), **({"Cookie": f"{SESSION_COOKIE}={cookie}"} if cookie else {})}
        connection = self.connection(at=at, source=source)
        try:
            if form is None:
                connection.request("GET", path, headers=more)
            else:
                more["Content-Type"] = "application/x-www-form-urlencoded"
                connection.request("POST", path, urlencode(form), more)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def sign_in(self, password: str = PASSWORD, **how: object) -> Answer:
        """Send the sign-in form, with nobody's session."""
        return self.ask("/sign-in", {"name": PERSON, "password": password}, session="", **how)  # type: ignore[arg-type]

    def make_person(self) -> None:
        """Make the first administrator by the one-time link."""
        code = ok("people", "link", "--json", folder=self.folder).json["link"].partition("code=")[2]
        form = {"code": code, "name": PERSON, "password": PASSWORD, "again": PASSWORD}
        assert self.ask(f"/link?code={code}").status == 200
        assert code not in self.log
        self.session = session_of(self.ask("/link", form))


def _trust() -> ssl.SSLContext:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


def session_of(answer: Answer) -> str:
    """Return the session that an answer begins."""
    assert answer.status == 303, answer
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]


@contextmanager
def proxy_site(work: Path, database: str) -> Iterator[ProxySite]:
    """Yield two web processes behind HAProxy, on a database."""
    program, folder, consoles = need_haproxy(), work / "cloud", [free_port(), free_port()]
    ok("init", "--name", HOST, "--database", database, folder=folder)
    site = ProxySite(folder, work, free_port(), consoles)
    config = yaml.safe_load((folder / "controller.yaml").read_text())
    (work / "secret").touch(0o600)
    (work / "secret").write_text(f"{SECRET}\n")
    config["console"] |= {"url": site.url, "trusted_proxies": [HOST], "proxy_secret_file": str(work / "secret")}
    (folder / "controller.yaml").write_text(yaml.safe_dump(config))
    pair = Authority("people").pair("people", hosts=[HOST])
    (work / "people.pem").write_text(pair.cert + pair.key)
    shutil.copy(CloudLayout(folder).ca_cert("servers"), work / "servers.crt")
    (work / "global.cfg").write_text(_LOG)
    (work / "edgegpu.cfg").write_text(rendered(work, site.port, consoles))
    with ExitStack() as stack:
        stack.callback(site.end)
        for console in consoles:
            site.start(console)
        words = [program, "-db", "-f", str(work / "global.cfg"), "-f", str(work / "edgegpu.cfg")]
        with (work / "haproxy.log").open("wb") as log:
            stack.callback(end, subprocess.Popen(words, stdout=log, stderr=log))
        wait_for(lambda: site.is_ready(site.port), what="the proxy answers")
        site.make_person()
        yield site


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)
