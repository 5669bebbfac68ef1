"""The units of a controller's machine, `systemd/cloud`: each command runs, and tells systemd when it is ready."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3
from kits.cloudcli import ok, run
from kits.enrol import Box
from kits.mqtt import wait_for
from kits.storeschema import make_old
from kits.units import command, view

from edgegpu_cloud.http.app import REFUSED_WITH_TOKEN_HERE
from edgegpu_cloud.layout import CloudLayout, load
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROLLER, HTTPS = "edgegpu-cloud-controller.service", "edgegpu-cloud-https.service"
CONSOLE = "edgegpu-cloud-console@.service"
READY_S = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a controller with a console."""
    made = tmp_path / "cloud"
    ports = ("--https-port", str(free_port()), "--console-port", str(free_port()))
    ok("init", "--name", "127.0.0.1", *ports, "--broker", f"127.0.0.1:{free_port()}", folder=made)
    return made


class Manager:
    """What systemd has heard of a service."""

    def __init__(self, log: Path) -> None:
        self.log, self.heard = log, list[str]()
        name = f"edgegpu-{secrets.token_hex(8)}"  # abstract: a path may be too long
        self.address = f"@{name}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name}")
        self._socket.settimeout(READY_S)

    def hears(self, text: str) -> None:
        """Wait until the service has sent this."""
        while not any(text in one for one in self.heard):
            try:
                self.heard.append(self._socket.recv(4_096).decode())
            except TimeoutError:
                pytest.fail(f"systemd has not heard {text}: {self.log.read_text()}")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def started(unit: str, folder: Path, instance: str = "") -> Iterator[Manager]:
    """Run a unit's command on a folder; it ends with status 0 on SIGTERM."""
    place = folder.with_name(f"{unit}{instance}")
    place.mkdir()
    log = place / "log"
    manager = Manager(log)
    env = {**os.environ, "EDGEGPU_CLOUD": str(folder), "NOTIFY_SOCKET": manager.address}
    with log.open("wb") as out:
        words = [sys.executable, "-m", "edgegpu_cloud.cli.app", *command(unit, instance)[1:]]
        process = subprocess.Popen(words, stdout=out, stderr=out, env=env)
    try:
        yield manager
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(30)
        manager.close()
    assert status == 0, log.read_text()


def test_every_part_runs_and_tells_systemd_that_it_is_ready(folder: Path, tmp_path: Path) -> None:
    ports = [str(free_port()), str(free_port())]
    with ExitStack() as stack:
        for unit in (HTTPS, CONTROLLER):
            stack.enter_context(started(unit, folder)).hears("READY=1")
        for port in ports:
            seen = view(CONSOLE, folder, tmp_path / f"seen-{port}")
            manager = stack.enter_context(started(CONSOLE, seen, port))
            manager.hears("READY=1")
            assert f"(listening on port {port})" in manager.log.read_text()


def test_a_folder_from_before_the_console_gets_its_certificate_where_the_authorities_are(
    folder: Path, tmp_path: Path
) -> None:
    layout = CloudLayout(folder)
    layout.cert("console").unlink()
    layout.key("console").unlink()
    done = run("serve", *command(CONSOLE, str(free_port()))[2:], folder=view(CONSOLE, folder, tmp_path / "early"))
    assert (done.code, "start HTTPS where the authorities are" in done.err) == (1, True), done.err
    with started(HTTPS, folder) as https:
        https.hears("READY=1")
        with started(CONSOLE, view(CONSOLE, folder, tmp_path / "seen"), str(free_port())) as console:
            console.hears("READY=1")


def test_one_that_waits_for_the_tables_says_so_and_goes_on_when_they_are_there(folder: Path) -> None:
    make_old(folder / "controller.db")
    with started(HTTPS, folder) as manager:
        manager.hears("READY=1")  # a start that lasted until somebody migrates would be killed by systemd
        assert any("STATUS=" in one and "run `edgegpu-cloud migrate`" in one for one in manager.heard)
        ok("migrate", folder=folder)
        manager.heard.clear()
        manager.hears("STATUS=")
        wait_for(lambda: "boxes enrol at" in manager.log.read_text(), what="it serves")


def test_throttled_requests_to_enrol_are_in_one_alarm_soon_after(folder: Path) -> None:
    layout = CloudLayout(folder)
    token = json.loads(ok("enrol", "--json", folder=folder).out)["token"]
    port = load(layout.config).https.port
    with started(HTTPS, folder) as manager, urllib3.PoolManager(ca_certs=str(layout.ca_cert("servers"))) as pool:
        manager.hears("READY=1")
        for _ in range(REFUSED_WITH_TOKEN_HERE + 4):  # the first is taken in
            pool.request("POST", f"https://127.0.0.1:{port}/v1/enrol", json=Box(token).ask(), retries=False)

        def counted() -> list[int]:
            found = json.loads(ok("alarms", "--json", folder=folder).out)
            return [one["times"] for one in found if one["kind"] == "enrol.TOO_MANY"]

        wait_for(lambda: counted() == [3], what="the alarm of the throttled requests")


def test_the_port_of_a_console_that_is_not_served_is_refused(folder: Path) -> None:
    done = run("serve", "--no-console", "--console-port", "8445", folder=folder)
    assert (done.code, "no console is served here" in done.err) == (2, True), done.err
