"""Descriptors of the controller's processes: what the documented units give is what HTTPS takes, and makes do with."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3
from kits.cloudcli import ok
from kits.mqtt import wait_for

from edgegpu_cloud.app import DESCRIPTORS
from edgegpu_cloud.http.server import HANDSHAKE_MAX_S
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
DOCS, UNITS = ROOT / "docs", ROOT / "systemd/cloud"


def test_each_unit_gives_as_many() -> None:
    found = {path.stem: path.read_text(encoding="utf-8") for path in UNITS.glob("*.service")}
    limits = {name: re.findall(r"^LimitNOFILE=(.*)$", text, re.MULTILINE) for name, text in found.items()}
    assert {"edgegpu-broker", "edgegpu-cloud", "edgegpu-cloud-https", "edgegpu-cloud-controller"} <= limits.keys()
    assert all(given == [str(DESCRIPTORS)] for given in limits.values()), limits
    assert re.findall(r"LimitNOFILE=(\d+)", (DOCS / "broker.md").read_text(encoding="utf-8")) == [str(DESCRIPTORS)]


@contextmanager
def https(work: Path, limits: str) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """Run `serve` for HTTPS alone under these limits of a shell; yield the process, its port and its log."""
    folder, port, log = work / "cloud", free_port(), work / "log"
    ok("init", "--name", "127.0.0.1", "--https-port", str(port), "--no-console", folder=folder)
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(folder)]
    with log.open("wb") as to:
        process = subprocess.Popen(["sh", "-c", f'{limits}; exec "$@"', "sh", *words], stdout=to, stderr=to)
    try:
        wait_for(lambda: b"boxes enrol at" in log.read_bytes(), what="HTTPS listens")
        yield process, port, log
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def test_https_takes_what_the_units_give_where_it_was_started_with_less(tmp_path: Path) -> None:
    """As without LimitNOFILE: systemd's own default lets a process have many, and gives it few at first."""
    with https(tmp_path, "ulimit -Sn 256; ulimit -Hn 524288 2>/dev/null") as (process, _, _):
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        (found,) = re.findall(r"^Max open files +(\d+) +(\d+)", limits, re.MULTILINE)
        soft, hard = (int(one) for one in found)
        if hard <= 256:
            pytest.skip("a process may not have more descriptors here")
        assert soft == min(hard, DESCRIPTORS)


def test_a_flood_makes_room_where_there_are_fewer_descriptors_than_places(tmp_path: Path) -> None:
    with https(tmp_path, "ulimit -Sn 200; ulimit -Hn 200") as (_, port, log), ExitStack() as flood:
        for _ in range(250):
            flood.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        ca = CloudLayout(tmp_path / "cloud").ca_cert("servers")
        within_s = HANDSHAKE_MAX_S / 2  # the flood is there all the time
        with urllib3.PoolManager(ca_certs=str(ca), timeout=within_s, retries=False) as pool:
            assert pool.request("GET", f"https://127.0.0.1:{port}/healthz").status == 200
        wait_for(lambda: b"connections closed to make room" in log.read_bytes(), what="the flood has made room")
