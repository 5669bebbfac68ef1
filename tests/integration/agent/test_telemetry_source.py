"""Telemetry over the plugin's real status server, with programs that stand in for nvidia-smi, systemctl and k3s."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from kits.cli import CARD_0, document, plugin

from edgegpu_agent.telemetry.machine import MachineReader
from edgegpu_agent.telemetry.programs import Programs
from edgegpu_agent.telemetry.source import TelemetryReader
from edgegpu_plugin.status import mark_changed

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 60.0
SMI = f"echo '{CARD_0}, 0, Tesla P4, 7611, 560.35.03, 41, 2310, 61, 52.40'"
UNITS = (
    r'printf "Id=%s\nLoadState=%s\nActiveState=%s\n\n" k3s.service loaded active edgegpu-plugin.service loaded failed'
)


class World:
    """A root, programs, and the telemetry over them; `now` is its clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 100.0
        (root / "bin").mkdir()
        (root / "run").mkdir()
        (root / "var/lib/edgegpu").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "etc/os-release").write_text('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n')
        (root / "VERSION").write_text("0.2.0\n")
        self.programs = Programs(
            clock=lambda: self.now, environment={"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "BOX": str(root)}
        )
        self.machine = MachineReader(root=root, programs=self.programs, release=root)
        self.telemetry = TelemetryReader(
            socket=root / "run/plugin.sock",
            machine=self.machine,
            programs=self.programs,
            node="box-1",
            period_s=60,
            clock=lambda: self.now,
            wall=lambda: 1_790_000_000.0,
        )

    def program(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def parts(self) -> dict[str, tuple[str, str]]:
        return {one.name: (one.state, one.text) for one in self.telemetry.health_parts()}


@pytest.fixture
def world(short_tmp: Path) -> World:
    made = World(short_tmp)
    made.program("nvidia-smi", SMI)
    made.program("systemctl", UNITS)
    made.program("k3s", 'echo x >> "$BOX/k3s"; echo "k3s version v1.33.3+k3s1 (236cbf25)"')
    return made


def test_what_is_seen_of_a_box_that_shares(world: World) -> None:
    with plugin(world.root / "run", document()):
        world.telemetry.refresh()
    inventory = world.telemetry.inventory()
    assert inventory is not None
    assert [(card.label, card.memory_mib) for card in inventory["cards"]] == [("0", 7611), ("1", 7424)]
    alloc = world.telemetry.alloc()
    assert alloc is not None
    assert {pod.name for pod in alloc.values()} == {"face", "plate"}
    assert world.parts()["k3s"] == ("ok", "")
    assert world.parts()["plugin"] == ("ok", "version 0.1.0")
    versions = world.telemetry.versions()
    assert (versions.agent, versions.plugin, versions.k3s) == ("0.2.0", "0.1.0", "v1.33.3+k3s1")
    assert (versions.driver, versions.os) == ("560.35.03", "Debian GNU/Linux 12")
    (sample,) = world.telemetry.samples()
    assert (sample.at, sample.cards[0].core_used) == (1_790_000_000, 41)
    assert world.telemetry.samples() == []


def used(uid: str, *, at: int = 1_790_000_000) -> dict[str, object]:
    row = {"card": CARD_0, "uid": uid, "container": "main", "processes": 1, "memory_mib": 700}
    return {"at": at, "containers": [row]}


def test_a_measurement_has_what_containers_use(world: World) -> None:
    with plugin(world.root / "run", document(memory_use=used("uid-face"))):
        world.telemetry.refresh()
    (sample,) = world.telemetry.samples()
    assert sample.memory_use is not None
    assert [(one.uid, one.memory_mib) for one in sample.memory_use] == [("uid-face", 700)]


def test_cards_whose_load_is_not_known_have_users_all_the_same(world: World) -> None:
    world.program("nvidia-smi", f"echo '{CARD_0}, 0, A100, 40960, 560.35.03, [N/A], [N/A], [N/A], [N/A]'")
    with plugin(world.root / "run", document(memory_use=used("uid-face"))):
        world.telemetry.refresh()
    (sample,) = world.telemetry.samples()
    assert (sample.cards, sample.memory_use is not None) == ((), True)


def test_what_a_plugin_measured_long_ago_is_not_sent_as_new(world: World) -> None:
    with plugin(world.root / "run", document(memory_use=used("uid-face", at=1_789_990_000))):
        world.telemetry.refresh()
    (sample,) = world.telemetry.samples()
    assert sample.memory_use is None


def test_what_is_seen_of_a_box_whose_plugin_is_down_or_not_installed(world: World) -> None:
    world.telemetry.refresh()
    assert world.telemetry.alloc() is None
    assert world.telemetry.inventory() is None, "a plugin that is silent is not taken for sharing that is off"
    silent = "it does not answer since 2026-09-21 14:13:20 UTC; systemd says failed"
    assert world.parts()["plugin"] == ("bad", silent)
    world.program("systemctl", UNITS.replace("edgegpu-plugin.service loaded", "edgegpu-plugin.service not-found"))
    world.telemetry.refresh()
    inventory = world.telemetry.inventory()
    assert inventory is not None
    assert not inventory["sharing"]
    assert world.parts()["plugin"] == ("off", "GPU sharing is not installed")


def test_while_the_api_server_is_silent_pods_keep_their_names(world: World) -> None:
    with plugin(world.root / "run", document()):
        world.telemetry.refresh()
    before = world.telemetry.alloc()
    gone = {"namespace": "", "pod": "", "phase": "Gone", "state": "held"}
    rows = [{**row, **gone} for row in document()["pods"]]
    with plugin(world.root / "run", document(pods=rows, api={"synced": False, "problem": "connection refused"})):
        world.telemetry.refresh()
    assert world.telemetry.alloc() == before
    unknown = [{**row, "uid": "77aa1b52"} for row in rows[:1]]
    with plugin(world.root / "run", document(pods=unknown, api={"synced": False, "problem": ""})):
        world.telemetry.refresh()
    found = world.telemetry.alloc()
    assert found is not None
    assert [(one.name, one.phase) for one in found.values()] == [("77aa1b52", "Unknown")]
    with plugin(world.root / "run", document(pods=unknown)):
        world.telemetry.refresh()
    found = world.telemetry.alloc()
    assert found is not None
    assert [one.phase for one in found.values()] == ["Gone"], "the API server has said so"


def test_a_box_with_nothing_at_all(world: World) -> None:
    for name in ("nvidia-smi", "systemctl", "k3s"):
        world.program(name, "exit 1")
    (world.root / "var/lib/edgegpu").rmdir()
    world.telemetry.refresh()
    inventory = world.telemetry.inventory()
    assert inventory is not None
    assert inventory["cards"] == ()
    assert world.parts()["k3s"] == ("off", "systemd has no unit of k3s")
    assert world.parts()["disk"][0] == "bad"
    assert world.telemetry.samples() == []


def test_each_thing_is_looked_at_in_its_time(world: World) -> None:
    world.program("nvidia-smi", f'echo x >> "$BOX/smi"; {SMI}')
    thread = threading.Thread(target=world.telemetry.run)
    thread.start()
    ends = time.monotonic() + WAIT_S
    while not world.parts():
        assert time.monotonic() < ends
        os.sched_yield()
    world.telemetry.stop()
    thread.join(WAIT_S)
    world.now += 9
    world.telemetry._look()  # noqa: SLF001  (its loop, a turn at a time)
    world.now += 52
    world.telemetry._look()  # noqa: SLF001
    assert (world.root / "smi").read_text() == "x\nx\n"
    assert (world.root / "k3s").read_text() == "x\n"


def test_a_change_that_the_plugin_marks_is_read_at_once_and_told(world: World) -> None:
    """The clock stands still: nothing is due."""
    answer, told = document(), threading.Event()
    with plugin(world.root / "run", answer):
        world.telemetry.refresh()
        world.telemetry.set_listener(told.set)
        thread = threading.Thread(target=world.telemetry.run)
        thread.start()
        assert world.telemetry.alloc()
        answer["pods"] = []
        mark_changed(world.root / "run")
        assert told.wait(WAIT_S)
        assert world.telemetry.alloc() == {}
        world.telemetry.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_program_that_hangs_is_left_and_not_asked_for_a_while(world: World) -> None:
    world.program("hangs", 'echo x >> "$BOX/hangs"; exec sleep 100')
    assert world.programs.output_of(("hangs",), timeout_s=0.2) is None
    assert world.programs.output_of(("hangs",), timeout_s=0.2) is None
    assert (world.root / "hangs").read_text() == "x\n"
    world.program("hangs", "echo well")
    world.now += 601
    assert world.programs.output_of(("hangs",), timeout_s=5) == "well\n"
    assert world.programs.output_of(("missing",), timeout_s=5) is None
