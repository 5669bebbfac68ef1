"""A controller with its broker, both real processes in a folder, and boxes that live on them."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kits.cloudcli import Done, ok, run
from kits.enrol import Box
from kits.livebox import LiveBox, enrol
from kits.mqtt import end_mosquitto, need_mosquitto, wait_for

from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Cloud:
    """A controller with its broker, both real processes."""

    folder: Path
    url: str
    ca: Path
    work: Path
    broker_command: list[str]
    broker_port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_broker(self) -> None:
        """Start the broker, the first of the processes, and wait until it listens."""
        self.processes.insert(
            0, subprocess.Popen(self.broker_command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        wait_for(lambda: answers(self.broker_port), what="the broker listens")

    def stop_broker(self) -> None:
        """End the broker, and wait for its end."""
        end_mosquitto(self.processes.pop(0))

    def ok(self, *words: str) -> Done:
        return ok(*words, folder=self.folder)

    def run(self, *words: str) -> Done:
        return run(*words, folder=self.folder)

    def serve(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(self.folder)]
        with (self.work / "serve.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        self.processes.append(process)
        wait_for(lambda: b"connected: asking" in self.log(), what="the controller is on the link")
        return process

    def enrols(self, name: str) -> bool:
        """Whether a box of that name is taken in now."""
        hand = Box(self.ok("enrol", "--name", name, "--json").json["token"])
        return bool(enrol(self.url, self.ca, hand).device)

    def log(self) -> bytes:
        return (self.work / "serve.log").read_bytes()

    def box(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("box", name, "--json").json["box"]
        return found

    @contextmanager
    def live(self, name: str) -> Iterator[LiveBox]:
        hand = Box(self.ok("enrol", "--name", name, "--json").json["token"])
        with LiveBox(self.work / name, hand, enrol(self.url, self.ca, hand)) as box:
            wait_for(lambda: self.box(name)["online"], what=f"{name} is online")
            wait_for(lambda: bool(self.box(name)["cluster"]), what=f"{name} has reported")
            yield box

    def move(self, folder: Path) -> None:
        """Go on in another folder: what is started next is the controller there."""
        self.folder, self.ca = folder, CloudLayout(folder).ca_cert("servers")
        self.broker_command[-1] = str(folder / "broker/mosquitto.conf")

    def end(self) -> None:
        """Tell the controller to end, and see that it does."""
        process = self.processes.pop()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, self.log()[-2_000:]
        (self.work / "serve.log").unlink()


HTTPS, CONTROLLER = "edgegpu-https", "edgegpu-control"


def parts(cloud: Cloud) -> dict[str, int]:
    """Return the processes of the `serve` that runs by their names."""
    pid = cloud.processes[-1].pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{child}/comm").read_text().strip(): int(child) for child in children}


@contextmanager
def running(work: Path, *more: str) -> Iterator[Cloud]:
    """Make a controller, with these further words for `init`; start its broker and it."""
    mosquitto = need_mosquitto()
    folder, https, broker, controllers = work / "edgegpu", free_port(), free_port(), free_port()
    ports = ("--https-port", str(https), "--broker", f"127.0.0.1:{broker}", "--controller-port", str(controllers))
    ok("init", "--name", "127.0.0.1", *ports, "--no-console", *more, folder=folder)
    command = [mosquitto, "-c", str(folder / "broker/mosquitto.conf")]
    made = Cloud(folder, f"https://127.0.0.1:{https}", CloudLayout(folder).ca_cert("servers"), work, command, broker)
    try:
        made.start_broker()
        made.serve()
        yield made
    finally:
        for process in reversed(made.processes):
            process.terminate()
            process.wait(30)
