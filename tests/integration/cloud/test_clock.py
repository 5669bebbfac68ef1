"""A controller whose machine's clock leaps by decades: what its boxes are told, and what a person is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok
from kits.enrol import Box
from kits.livebox import enrol
from kits.mqtt import wait_for

from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_S = 86_400


def faketime() -> Path:
    """Return the library that stands before the clock."""
    if shutil.which("faketime") is None:
        if "CI" in os.environ:
            pytest.fail("faketime is not on the PATH: apt-get install faketime")
        pytest.skip("faketime is not on the PATH: apt-get install faketime")
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class Machine:
    """One whose clock is set by a file, and the controller on it; nothing else on it sees that clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "edgegpu", free_port()
        ok("init", "--name", "127.0.0.1", "--https-port", str(self.port), "--no-console", folder=self.folder)
        self._log = folder / "serve.log"
        self._set = folder / "clock"
        self._set.write_text("+0")
        self._env = {
            **os.environ,
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._set),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def serve(self, *more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(self.folder)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*words, *more], env=self._env, stdout=log, stderr=log)
        return self.process

    def serves(self) -> None:
        wait_for(lambda: "boxes enrol at" in self.log(), what="it serves")

    def leap(self, days: int) -> None:
        self._set.write_text(f"+{days}d")

    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def told(self) -> float:
        """Return the time that a box is told that enrols now."""
        hand = Box(ok("enrol", "--json", folder=self.folder).json["token"])
        ca = CloudLayout(self.folder).ca_cert("servers")
        return enrol(f"https://127.0.0.1:{self.port}", ca, hand).server_time


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.end()


def test_a_leap_is_told_to_people_and_not_to_boxes(machine: Machine) -> None:
    machine.serve()
    machine.serves()
    assert abs(machine.told() - time.time()) < DAY_S
    machine.leap(73 * 365)
    assert abs(machine.told() - time.time()) < DAY_S
    wait_for(lambda: ok("alarms", "--json", folder=machine.folder).json, what="an alarm")
    (alarm,) = ok("alarms", "--json", folder=machine.folder).json
    assert alarm["kind"] == "clock.LEAPT"
    machine.leap(0)
    assert abs(machine.told() - time.time()) < DAY_S
    machine.end()
    machine.leap(73 * 365)
    assert machine.serve().wait(60) == 1
    assert "cannot serve: this machine's clock says" in machine.log()
    assert "--clock-is-right" in machine.log()
    machine.serve("--clock-is-right")
    machine.serves()
    assert "Traceback" not in machine.log()
