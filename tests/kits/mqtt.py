"""A real mosquitto for tests, from the configuration that edgegpu writes, with certificates made on the fly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.mqttcerts import SERVER_NAMES, Shown, TestCa

from edgegpu_cloud.broker.config import BrokerLimits, BrokerPaths, Listeners, guard_source, render
from edgegpu_sim.ports import answers, free_port
from edgegpu_sync.link.events import Address

if TYPE_CHECKING:
    from collections.abc import Callable

MISSING = "mosquitto is not on the PATH: apt-get install mosquitto"
MISSING_HEADERS = "mosquitto's headers are missing: apt-get install mosquitto-dev libmosquitto-dev"


def need_mosquitto() -> str:
    """Return mosquitto's path, or the program that EDGEGPU_MOSQUITTO names; without it the test is skipped, in CI
    it fails."""
    program = os.environ.get("EDGEGPU_MOSQUITTO", "mosquitto")
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return path


def wait_for(probe: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
    """Wait until `probe` says yes; for things of other processes, which tell of nothing themselves."""
    end = time.monotonic() + timeout_s
    while not probe():
        if time.monotonic() > end:
            raise TimeoutError(f"not so after {timeout_s:g} s: {what}")
        time.sleep(0.01)


def compile_guard(folder: Path) -> Path:
    """Compile the plugin by the headers of this machine, or of the folder that EDGEGPU_MOSQUITTO_HEADERS names.

    Without them the test is skipped, in CI it fails.
    """
    headers = os.environ.get("EDGEGPU_MOSQUITTO_HEADERS", "/usr/include")
    if not all(Path(headers, name).exists() for name in ("mosquitto_plugin.h", "mosquitto.h")):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING_HEADERS)
    library = folder / "mosquitto_guard.so"
    words = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{headers}", "-x", "c", "-o"]
    subprocess.run([*words, library, "-"], input=guard_source(), text=True, check=True, timeout=60)
    return library


def end_mosquitto(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> None:
    """End a mosquitto by a signal, and wait for its end.

    mosquitto 2.0.11 loses a SIGTERM that comes after its listeners answer and before its loop runs.

    Raises:
        subprocess.TimeoutExpired: it has not ended after half a minute of signals.
    """
    for _ in range(5):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return
    process.wait(5)


@dataclass(slots=True)
class Mosquitto:
    """A broker in a folder of its own: two listeners, each with its authority; not started yet."""

    folder: Path
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    guard: bool = False
    program: str = field(default_factory=need_mosquitto)
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    boxes: TestCa = field(default_factory=lambda: TestCa("boxes"))
    controllers: TestCa = field(default_factory=lambda: TestCa("controllers"))
    servers: TestCa = field(default_factory=lambda: TestCa("servers"))
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.data.mkdir()
        self.boxes.crl(self.crl)
        self.servers.write(self.folder / "servers.crt")
        shown = self.servers.issue(self.folder, "broker", names=SERVER_NAMES)
        paths = BrokerPaths(
            folder=self.folder,
            data=self.data,
            boxes_ca=self.boxes.write(self.folder / "boxes.crt"),
            controllers_ca=self.controllers.write(self.folder / "controllers.crt"),
            crl=self.crl,
            cert=shown.cert,
            key=shown.key,
        )
        guard = str(compile_guard(self.folder)) if self.guard else ""
        listeners = Listeners(boxes=self.port, controllers=self.controller_port, bind="127.0.0.1")
        for name, text in render(listeners, paths, limits=self.limits, user="root", guard=guard).items():
            (self.folder / name).write_text(text)

    @property
    def data(self) -> Path:
        """Where it keeps what lasts."""
        return self.folder / "data"

    @property
    def crl(self) -> Path:
        """The list of the boxes' revoked certificates: read at its start, and at SIGHUP."""
        return self.folder / "boxes.crl"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until both ports answer."""
        with (self.folder / "log").open("ab") as log:
            command = [self.program, "-c", str(self.folder / "mosquitto.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        wait_for(lambda: self._answers(self.port) and self._answers(self.controller_port), what="mosquitto listens")

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"mosquitto has ended:\n{self.log}")
        return answers(port)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def saved(self) -> None:
        """Wait until it has saved what it knew when this was called."""
        asked = time.time_ns()
        self.send(signal.SIGUSR1)
        file = self.data / "edgegpu.db"
        wait_for(lambda: file.exists() and file.stat().st_mtime_ns > asked, what="mosquitto has saved")

    def stop(self) -> None:
        """End it in order; it saves what it keeps. Nothing where it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with kill -9."""
        self._end(signal.SIGKILL)

    def wipe(self) -> None:
        """Remove what it has kept; it must not run."""
        shutil.rmtree(self.data)
        self.data.mkdir()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            end_mosquitto(self._process, number)
            self._process = None

    def box(self, name: str, *, port: int | None = None) -> Address:
        """Return how a box of that name reaches it, with a new certificate; `port`: of a proxy before it."""
        return self._address(name, self.boxes.issue(self.folder, name), port or self.port)

    def controller(self, name: str = "controller-1", *, port: int | None = None, client_id: str = "") -> Address:
        """Return how a controller reaches it; its client-id is one that no box knows."""
        shown = self.controllers.issue(self.folder, name)
        return self._address(client_id or f"{name}.5f0c", shown, port or self.controller_port)

    def _address(self, client_id: str, shown: Shown, port: int) -> Address:
        return Address(
            host="127.0.0.1",
            port=port,
            client_id=client_id,
            ca=self.folder / "servers.crt",
            cert=shown.cert,
            key=shown.key,
        )
