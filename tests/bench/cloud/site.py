"""Controllers with their broker and many simulated boxes, all real processes; what they use, and how far they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kits import postgres
from kits.cloudprocess import Cloud, parts, running
from sqlalchemy import func, select

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.schema import BoxRow
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.manyboxes.enrolled import devices_of, enrol_all
from edgegpu_sim.manyboxes.profiles import equal_box
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edgegpu_sync.ids import DeviceId

ROOT = Path(__file__).resolve().parents[3]
_TICKS = os.sysconf("SC_CLK_TCK")
CONTROLLER = "edgegpu-control"


@dataclass
class FleetSite:
    """The processes, the store, and the boxes."""

    cloud: Cloud
    store: ControllerStore
    fleet: Fleet
    devices: Sequence[DeviceId]
    boxes: subprocess.Popen[bytes]
    console_port: int
    further: Mapping[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The controllers after the first, by name."""
    told: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    """The URL of the controllers' database."""

    def read(self) -> None:
        """Keep the last line that the boxes' process has printed."""
        assert self.boxes.stdout is not None
        for line in self.boxes.stdout:
            self.told = json.loads(line)

    def pids(self) -> dict[str, int]:
        """Return the processes by name."""
        return {
            "broker": self.cloud.processes[0].pid,
            "boxes": self.boxes.pid,
            **parts(self.cloud),
            **{name: process.pid for name, process in self.further.items()},
        }

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds that each process has used."""
        found = {}
        for name, pid in self.pids().items():
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(words[11]) + int(words[12])) / _TICKS
        return found

    def rss_mib(self, name: str) -> float:
        """Return the resident memory of a process."""
        text = Path(f"/proc/{self.pids()[name]}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def wait(self, true: Callable[[], bool], *, what: str, timeout_s: float) -> float:
        """Wait until something is so; return the seconds."""
        began = time.monotonic()
        while not true():
            if self.boxes.poll() is not None:
                raise RuntimeError(f"the boxes' process has ended with {self.boxes.returncode}; it said {self.told}")
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"not so after {timeout_s:g} s: {what}; the boxes say {self.told}")
            time.sleep(0.1)
        return time.monotonic() - began

    def all_born(self) -> bool:
        """Say whether each box is connected and has sent its birth."""
        return bool(self.told.get("born") == len(self.devices))

    def all_share(self) -> bool:
        """Say whether every controller holds its share of the boxes."""
        with self.store.read() as tx:
            held = Counter(lease.holder for lease in tx.leases.all())
        return "" not in held and len(held) == 1 + len(self.further) and max(held.values()) - min(held.values()) <= 1

    def all_online(self) -> bool:
        """Say whether the controller has stored that each box is connected, and its cards."""
        counts = self.fleet.counts()
        return counts.connected == len(self.devices) == counts.healthy == counts.with_room

    def fewest_births(self) -> int:
        """Return the number of the birth that the store has of the box that is furthest behind.

        When a box was last heard does not tell it: that is stored every 30 s, and a birth which the broker retained
        does not change it.
        """
        engine = open_engine(self.url)
        try:
            with engine.connect() as connection:
                return int(connection.execute(select(func.min(BoxRow.epoch_count))).scalar_one() or 0)
        finally:
            engine.dispose()


@contextmanager
def fleet_site(work: Path, *, boxes: int, controllers: int = 0) -> Iterator[FleetSite]:
    """Make everything; the boxes' process begins to connect at once.

    Args:
        work: a folder with a short path.
        boxes: how many.
        controllers: how many of them, on PostgreSQL; 0: one, on SQLite.
    """
    devices = devices_of(boxes)
    console_port = free_port()
    words = ["--console", "--console-port", str(console_port)]
    with ExitStack() as stack:
        url = stack.enter_context(_database(work)) if controllers else ""
        words += ["--database", url] if url else []
        cloud = stack.enter_context(running(work, *words))
        layout = CloudLayout(cloud.folder)
        url = url or f"sqlite:///{layout.database}"
        store = ControllerStore.open(url)
        further = stack.enter_context(_further(cloud, controllers))
        enrol_all(store, layout, devices, certs := work / "boxes", profile=equal_box, by="bench")
        words = [sys.executable, "-m", "edgegpu_sim.manyboxes", "--port", str(cloud.broker_port), "--ca", str(cloud.ca)]
        process = subprocess.Popen(
            [*words, "--folder", str(certs)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": f"{ROOT}/tests"}
        )
        site = FleetSite(
            cloud, store, Fleet(store, clock=time.time, by="bench"), devices, process, console_port, further, url=url
        )
        reader = threading.Thread(target=site.read, daemon=True)
        reader.start()
        try:
            yield site
        finally:
            process.kill()
            process.wait()
            reader.join(10)
            assert process.stdout is not None
            process.stdout.close()
            store.close()


@contextmanager
def _database(work: Path) -> Iterator[str]:
    """Start a PostgreSQL; yield the URL of an empty database."""
    work.chmod(0o711)  # the server's user has to come through
    folder = work / "pg"
    folder.mkdir()
    with postgres.running(folder) as server:
        yield server.new_database()


@contextmanager
def _further(cloud: Cloud, controllers: int) -> Iterator[Mapping[str, subprocess.Popen[bytes]]]:
    """Run the controllers after the first, each with a folder of its own."""
    found: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for number in range(2, controllers + 1):
            name, folder = f"controller-{number}", cloud.work / f"controller-{number}"
            cloud.ok("controllers", "add", str(number), "--out", str(folder))
            command = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-https", "--folder", str(folder)]
            with (cloud.work / f"{name}.log").open("wb") as log:
                found[name] = subprocess.Popen(command, stdout=log, stderr=log)
        yield found
    finally:
        for process in found.values():
            process.terminate()
            process.wait(30)
