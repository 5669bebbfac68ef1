"""The whole place: cloud, broker, network and boxes, as processes that speak to each other as they do in the field."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml
from chaos import machine
from chaos.kept import Kept
from chaos.lan import BUNDLE, LAN
from chaos.uploads import Uploads
from kits.faultproxy import FaultProxy
from kits.postgres import PostgresServer

from edgegpu_cloud.broker.folder import write_broker
from edgegpu_cloud.controller.partitions import LeaseTimes
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.booted import Booted
    from chaos.machine import Machine

READY_S = 300.0
"""Against what hangs: three controllers, HTTPS and a booted box start at once, beside other work of the machine."""

_CLOUD = str(machine.BIN / "edgegpu-cloud")


@dataclass(slots=True)
class Site:
    """Everything that runs; `tend` it often."""

    place: Path
    broker: Kept
    controller: Kept
    boxes: list[Machine]
    booted: list[Booted]
    to_boxes: FaultProxy
    to_controller: FaultProxy
    uploads: Uploads
    store: ControllerStore
    fleet: Fleet
    open_port: int
    """The broker's listener that asks nobody who he is: what a taken-over broker is."""
    broker_data: Path
    further: list[Kept] = field(default_factory=list)
    """Controllers beside the first one."""
    https: list[Kept] = field(default_factory=list)
    """HTTPS, where it is not in the process of the one controller."""
    database: PostgresServer | None = None
    """Where several controllers have their store."""
    lost_s: float = LeaseTimes().lost_s
    """After so many seconds the others take the partitions of a controller that is silent."""

    @property
    def controllers(self) -> list[Kept]:
        return [self.controller, *self.further]

    @property
    def kept(self) -> list[Kept]:
        return [self.broker, *self.https, *self.controllers, *(box.agent for box in self.boxes)]

    def tend(self) -> None:
        for one in self.kept:
            one.tend()
        for box in self.booted:
            box.tend()

    def wait(self, probe: Callable[[], bool], *, what: str, timeout_s: float = READY_S) -> None:
        end = time.monotonic() + timeout_s
        while not probe():
            self.tend()
            if time.monotonic() > end:
                raise TimeoutError(f"not so after {timeout_s:g} s: {what}; the logs are in {self.place}")
            time.sleep(0.02)

    def wipe_broker(self) -> None:
        """Remove what the broker has kept; it must not run."""
        for path in self.broker_data.iterdir():
            path.unlink()

    def close(self) -> None:
        for one in reversed(self.kept):
            one.stop()
        for box in self.boxes:
            box.close()
        self.to_boxes.__exit__(None, None, None)
        self.to_controller.__exit__(None, None, None)
        self.uploads.close()
        self.store.close()
        if self.database is not None:
            self.database.stop()


def build(
    place: Path,
    *,
    boxes: int,
    launcher: Sequence[str],
    rng: random.Random,
    booted: Sequence[Booted] = (),
    controllers: int = 1,
    lost_s: float = LeaseTimes().lost_s,
) -> Site:
    """Make everything and enrol the boxes: stand-ins by a token over HTTPS, booted ones by the line that is pasted.

    Args:
        place: an empty folder.
        boxes: how many with stand-ins.
        launcher: their agents' command line, without options.
        rng: for what goes wrong with uploads.
        booted: those that were made already; this process is on their network then.
        controllers: how many; several have their store in a PostgreSQL.
        lost_s: of their leases.
    """
    host, layout = LAN if booted else "127.0.0.1", CloudLayout(place / "cloud")
    ports = [free_port() for _ in range(4)]
    to_boxes, to_controller = _proxy(ports[0], host), _proxy(ports[1], host)
    database = _database(place) if controllers > 1 else None
    url = database.new_database() if database is not None else ""
    told = _init(layout, url, host=host, ports=(to_boxes.port, to_controller.port, ports[3]))
    _broker_files(layout, boxes=ports[0], controllers=ports[1], anybody=ports[2])
    further = [_further(place, layout, str(number), lost_s) for number in range(2, controllers + 1)]
    bundle = ("--bundle", BUNDLE) if booted else ()
    site = Site(
        place=place,
        broker=_kept("broker", place, _mosquitto(), "-c", layout.broker / "mosquitto.conf"),
        controller=_controller("controller", place, layout, *(("--no-https",) if further else bundle)),
        boxes=_machines(place, boxes, launcher),
        booted=[*booted],
        to_boxes=to_boxes,
        to_controller=to_controller,
        uploads=Uploads(place / "uploads", cert=layout.cert("https"), key=layout.key("https"), rng=rng, host=host),
        store=(store := ControllerStore.open(url or f"sqlite:///{layout.database}")),
        fleet=Fleet(store, clock=time.time, by="chaos"),
        open_port=ports[2],
        broker_data=layout.broker / "data",
        further=further,
        https=_https(place, layout, *bundle) if further else [],
        database=database,
        lost_s=lost_s,
    )
    return _enrolled(site, layout, told)


def _proxy(port: int, host: str) -> FaultProxy:
    proxy = FaultProxy(port, host=host)
    proxy.__enter__()
    return proxy


def _init(layout: CloudLayout, url: str, *, host: str, ports: tuple[int, int, int]) -> dict[str, str]:
    """Make the first controller; `ports`: of boxes at the broker, of controllers there, of HTTPS."""
    return _cloud(
        layout,
        *("init", *(("--database", url) if url else ()), "--name", host, "--broker", f"{host}:{ports[0]}"),
        *("--controller-port", str(ports[1]), "--https-port", str(ports[2]), "--no-console"),
    )


def _machines(place: Path, boxes: int, launcher: Sequence[str]) -> list[Machine]:
    bin_ = machine.programs(place / "bin")
    return [
        machine.make(f"box-{number}", place, bin_=bin_, launcher=launcher, own_disk=number == 1)
        for number in range(1, boxes + 1)
    ]


def _https(place: Path, layout: CloudLayout, *bundle: str | Path) -> list[Kept]:
    return [_kept("https", place, _CLOUD, "serve", "--no-link", "--folder", layout.folder, *bundle)]


def _database(place: Path) -> PostgresServer:
    folder = place / "pg"
    folder.mkdir()
    place.chmod(0o711)  # the server's user has to come through
    server = PostgresServer(folder)
    server.start()
    return server


def _controller(name: str, place: Path, layout: CloudLayout, *more: str | Path) -> Kept:
    return _kept(name, place, _CLOUD, "serve", "--folder", layout.folder, *more)


def faketime() -> Path | None:
    """Return the library that gives a process another clock, where Debian's package is installed."""
    return next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


def _further(place: Path, layout: CloudLayout, name: str, lost_s: float) -> Kept:
    """Make the folder of a further controller; its clock is a minute ahead or behind where faketime is there."""
    folder = place / f"cloud-{name}"
    _cloud(layout, "controllers", "add", name, "--out", str(folder))
    for one in (CloudLayout(folder), layout):
        config = yaml.safe_load(one.config.read_text())
        one.config.write_text(yaml.safe_dump(config | {"leases": {"renew_s": 0.3 * lost_s, "lost_s": lost_s}}))
    kept = _controller(f"controller-{name}", place, CloudLayout(folder), "--no-https")
    if library := faketime():
        skew = "+60s" if int(name) % 2 == 0 else "-60s"
        kept.clock = {"LD_PRELOAD": str(library), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return kept


def _kept(name: str, place: Path, *command: str | Path) -> Kept:
    return Kept(name=name, command=[*map(str, command)], log=place / f"{name}.log")


def _mosquitto() -> str:
    found = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SystemExit("mosquitto is not on the PATH: apt-get install mosquitto")
    return found


def _cloud(layout: CloudLayout, *words: str) -> dict[str, str]:
    command = [_CLOUD, *words, "--folder", str(layout.folder), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def _broker_files(layout: CloudLayout, *, boxes: int, controllers: int, anybody: int) -> None:
    """Write the broker's own files for the ports behind the proxies, and one listener that asks nobody who he is."""
    config: CloudConfig = load(layout.config)
    behind = config.broker.model_copy(update={"port": boxes, "controller_port": controllers})
    write_broker(layout, config.model_copy(update={"broker": behind}), into=layout.broker)
    with (layout.broker / "mosquitto.conf").open("a") as file:
        file.write(f"\nlistener {anybody} 127.0.0.1\nallow_anonymous true\n")


def _enrolled(site: Site, layout: CloudLayout, told: dict[str, str]) -> Site:
    """Return the site with all boxes on the link; one that does not come so far is closed."""
    try:
        _enrol(site, layout, told)
    except BaseException:
        site.close()  # else its processes go on, beside whatever comes next
        raise
    return site


def _enrol(site: Site, layout: CloudLayout, told: dict[str, str]) -> None:
    token = _cloud(layout, "enrol", "--count", str(len(site.boxes)))["token"]
    for box in site.boxes:
        machine.belongs(box, url=told["url"], ca_sha256=told["ca_sha256"], token=token)
        box.serve()
        box.agent.held = True
    address = urlsplit(told["url"])
    site.wait(lambda: answers(int(address.port or 0), str(address.hostname)), what="HTTPS answers")
    for box in site.boxes:
        box.agent.held = False
        identity = box.folder / "var/lib/edgegpu/identity/device.json"
        site.wait(identity.exists, what=f"{box.name} is enrolled")
        box.device = json.loads(identity.read_text())["device"]

    for one in site.booted:
        one.join(_cloud(layout, "enrol", "--name", one.name)["line"])

    def there() -> bool:
        return all(
            one.online and one.capabilities and (one.name not in pasted or "app_limits" in one.capabilities)
            for one in site.fleet.boxes()
        )

    pasted = {one.name for one in site.booted}
    for box in site.boxes:
        box.agent.kill(away_s=0)  # whoever has enrolled it: from here on it is the agent that the run is about
    site.wait(there, what="all boxes are on the link", timeout_s=2 * READY_S)
