"""The whole of it on one machine: a controller's process, a real mosquitto, and the agent's process over a root."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from kits.agentyaml import written
from kits.mqtt import need_mosquitto
from typer.testing import CliRunner

from edgegpu_cloud.cli.tree import app
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgegpu_cloud.fleet.views import BoxView, CommandView

WAIT_S = 180.0
SYSTEMCTL = """\
echo "$@" >> "$BOX/systemctl"
case "$1" in
show)
    printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=success\\nNRestarts=0\\nJob=\\n'
    printf 'InvocationID=%s\\n' "$(cat "$BOX/invocation" 2> /dev/null || echo first)"
    printf 'InactiveExitTimestampMonotonic=1\\nActiveEnterTimestampMonotonic=2\\n' ;;
restart) date +%N > "$BOX/invocation" ;;
esac
"""


def until(what: Callable[[], object], words: Callable[[], object]) -> None:
    """Wait for something of another process."""
    ends = time.monotonic() + WAIT_S
    while not what():
        if time.monotonic() > ends:
            pytest.fail(f"not so after {WAIT_S:g} s: {words()}")
        time.sleep(0.02)


class Cloud:
    """A controller's folder, its processes and the fleet in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, controllers, https = free_port(), free_port(), free_port()
        ports = (
            "--broker",
            f"127.0.0.1:{port}",
            "--controller-port",
            str(controllers),
            "--https-port",
            str(https),
            "--no-console",
        )
        self.command("init", "--name", "127.0.0.1", *ports)
        self.https = https
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.store = ControllerStore.open_file(folder / "controller.db")
        self.fleet = Fleet(self.store, clock=time.time, by="test", sleep=lambda _: time.sleep(0.05))

    def command(self, *words: str) -> str:
        done = CliRunner().invoke(
            app, [*words[:1], "--folder", str(self.folder), *words[1:]], prog_name="edgegpu-cloud"
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    def start(self, *names: str) -> None:
        mosquitto = [need_mosquitto(), "-c", str(self.folder / "broker/mosquitto.conf")]
        controller = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(self.folder)]
        for name in names:
            command = mosquitto if name == "mosquitto" else controller
            with (self.folder / f"{name}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait(WAIT_S)

    def forget(self) -> None:
        """Let the broker save what it keeps, kill it, and remove that."""
        kept = self.folder / "broker/data/edgegpu.db"
        self._processes["mosquitto"].send_signal(signal.SIGUSR1)
        until(kept.exists, lambda: self.log("mosquitto"))
        self.kill("mosquitto")
        kept.unlink()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def serves(self) -> None:
        """Wait until boxes can enrol."""
        until(lambda: answers(self.https), lambda: self.log("controller"))

    def line(self, name: str, how: str = "--name") -> dict[str, str]:
        """Return a new token for a box of that name, and where it is good; `--for` one that is there, to enrol anew."""
        made: dict[str, str] = json.loads(self.command("enrol", how, name, "--json"))
        return made

    def box(self, name: str) -> BoxView | None:
        return next((box for box in self.fleet.boxes() if box.name == name), None)

    def online(self, name: str) -> BoxView:
        until(lambda: (box := self.box(name)) is not None and box.online and box.versions, lambda: self.box(name))
        box = self.box(name)
        assert box is not None
        return box

    def end(self, name: str, op: str) -> CommandView:
        """Ask a box, and return how that ended."""
        id_ = self.fleet.command(name, op, {})
        *_, last = self.fleet.follow(id_, timeout_s=WAIT_S)
        return last

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self.store.close()


class Agent:
    """A root with stand-ins for programs, systemd's socket, and the agent's process over it."""

    def __init__(self, root: Path, *, machine: str = "3d1219c7c4c5404aaa1f6d2a48adfda4") -> None:
        self.root = root
        for folder in ("etc/edgegpu", "var/lib/edgegpu/tx", "run", "bin"):
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text(f"{machine}\n")
        self.program("systemctl", SYSTEMCTL)
        self.program("nvidia-smi", "exit 9")
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(root / "notify"))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._manager.close()

    def program(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def belongs(self, line: dict[str, str]) -> None:
        (self.root / "etc/edgegpu/agent.yaml").write_text(written(line["url"], line["ca_sha256"]))
        (self.root / "etc/edgegpu/cloud-token").write_text(line["token"])

    def on_link(self, cloud: Cloud, name: str) -> BoxView:
        """Enrol as a box of that name, and wait until the controller has its birth."""
        self.belongs(cloud.line(name))
        cloud.serves()
        self.start()
        return cloud.online(name)

    def start(self) -> None:
        env = {
            **os.environ,
            "NOTIFY_SOCKET": str(self.root / "notify"),
            "WATCHDOG_USEC": "30000000",
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "BOX": str(self.root),
        }
        command = [sys.executable, "-m", "edgegpu_agent", "--root", str(self.root)]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def fed(self) -> bool:
        """Wait for the watchdog's next meal, leaving out those of before."""
        self._manager.settimeout(0)
        try:
            while True:
                self._manager.recv(4096)
        except BlockingIOError:
            self._manager.settimeout(WAIT_S)
        return any(self._manager.recv(4096) == b"WATCHDOG=1" for _ in range(20))

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    @property
    def rss_mib(self) -> float:
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    @property
    def restarts(self) -> int:
        path = self.root / "systemctl"
        return sum(line.startswith("restart ") for line in path.read_text().splitlines()) if path.exists() else 0

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WAIT_S)
