"""All of a cloud behind one port of HAProxy, as docs/examples/haproxy-443.cfg has it: broker, HTTPS, console."""

from __future__ import annotations

import http.client
import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from kits import haproxy
from kits.agent import Cloud, until
from kits.cert import Authority
from kits.https import make_bundle
from kits.mqtt import wait_for

from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DOCUMENT = haproxy.FILE.parents[1] / "deploy.md"
FILE = haproxy.FILE.parent / "haproxy-443.cfg"
PEOPLE, BOXES, MQTT = "cloud.example.com", "boxes.cloud.example.com", "mqtt.cloud.example.com"
BIND = "bind unix@/var/lib/haproxy/people.sock mode 600 user haproxy accept-proxy ssl"
"""The line of the documents for the frontend `people`."""
HOST = haproxy.HOST


@dataclass
class Port443:
    """The port, and what is behind it."""

    cloud: Cloud
    port: int
    words: list[str]
    work: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start HAProxy, and wait until it answers."""
        with (self.work / "haproxy.log").open("ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)
        wait_for(lambda: self._answers(BOXES, "/healthz"), what="HTTPS answers behind HAProxy")
        wait_for(lambda: self._answers(PEOPLE, "/readyz"), what="the console answers behind HAProxy")

    def stop(self) -> None:
        """End HAProxy with all connections that it passes on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def _answers(self, name: str, path: str) -> bool:
        try:
            return self.ask(name, path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def tls(self, name: str | None, *, source: str = "127.0.0.5") -> ssl.SSLSocket:
        """Return a connection that asks for a name; what it shows is not verified."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        link = socket.create_connection((HOST, self.port), 30, (source, 0))
        try:
            return trust.wrap_socket(link, server_hostname=name)
        except BaseException:
            link.close()
            raise

    def shown(self, name: str) -> bytes:
        """Return the certificate that is shown for a name, DER."""
        with closing(self.tls(name)) as link:
            certificate = link.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate

    def ask(
        self,
        name: str,
        path: str,
        body: str = "",
        *,
        source: str = "127.0.0.5",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Send one request to a name, with a body a form's POST."""
        connection = http.client.HTTPSConnection(name, timeout=30)
        connection.sock = self.tls(name, source=source)
        with closing(connection):
            form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
            connection.request("POST" if body else "GET", path, body or None, {**form, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


def _config(work: Path, port: int, console: int, https: int, broker: int) -> list[str]:
    """Write the files of HAProxy as the documents change them; return the words to run it with."""
    assert BIND in DOCUMENT.read_text()
    root = os.geteuid() == 0
    people = haproxy.rendered(work, port, [console, console])
    bind = BIND.replace("/var/lib/haproxy", str(work))
    if not root or not _is_user("haproxy"):
        bind = bind.replace(" user haproxy", "")
    first = f"bind {HOST}:{port} ssl"
    assert first in people
    people = people.replace(first, bind)
    text = FILE.read_text().replace("bind :443\n", f"bind {HOST}:{port}\n")
    text = text.replace("controller:8443", f"{HOST}:{https}").replace("broker:8883", f"{HOST}:{broker}")
    if not root:
        text = text.replace("unix@/people.sock", f"unix@{work}/people.sock")
    assert not re.search(r":443$|:8443|:8883", re.sub("(?m)^ *#.*", "", text)), text
    chroot = f"  chroot {work}\n" if root else ""
    (work / "global.cfg").write_text(f"global\n  log stdout format raw local0\n{chroot}")
    (work / "people.cfg").write_text(people)
    (work / "443.cfg").write_text(text)
    files = [word for name in ("global", "people", "443") for word in ("-f", str(work / f"{name}.cfg"))]
    return [haproxy.need_haproxy(), "-db", *files]


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@contextmanager
def port_443(work: Path) -> Iterator[Port443]:
    """Yield a cloud that was made without HAProxy, was told of it by its configuration, and runs behind it."""
    cloud, port, console = Cloud(work / "cloud"), free_port(), free_port()
    layout = CloudLayout(cloud.folder)
    with ExitStack() as stack:
        stack.callback(cloud.close)
        config = yaml.safe_load(layout.config.read_text())
        (work / "secret").touch(0o600)
        (work / "secret").write_text(f"{haproxy.SECRET}\n")
        config["names"] = [PEOPLE, BOXES, *config["names"]]
        config["broker"]["boxes_address"] = f"{MQTT}:443"
        config["https"]["url"] = f"https://{BOXES}"
        config["console"] = {
            "port": console,
            "url": f"https://{PEOPLE}",
            "trusted_proxies": [HOST],
            "proxy_secret_file": str(work / "secret"),
        }
        layout.config.write_text(yaml.safe_dump(config))
        make_bundle(work / "bundle").rename(layout.release)
        cloud.start("controller")
        cloud.serves()
        until(lambda: "renewed the certificate of broker" in cloud.log("controller"), lambda: cloud.log("controller"))
        cloud.command("broker")
        cloud.start("mosquitto")
        pair = Authority("people").pair("people", hosts=[PEOPLE])
        (work / "people.pem").write_text(pair.cert + pair.key)
        shutil.copy(layout.ca_cert("servers"), work / "servers.crt")
        broker: int = config["broker"]["port"]
        site = Port443(cloud, port, _config(work, port, console, cloud.https, broker), work)
        stack.callback(site.stop)
        site.start()
        yield site
