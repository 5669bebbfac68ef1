"""Whose the processes on the cards are, for the status document."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import MODEL, box, pod_of

from edgegpu_core.deviceid import memory_ids
from edgegpu_core.ledger import CheckpointEntry, Ledger
from edgegpu_core.nodeview import NodeView
from edgegpu_core.placement import Policy
from edgegpu_core.podview import PodView
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.memory_use import MemoryUseReader
from edgegpu_plugin.records.node_state import Snapshot

MIB = 1 << 20
UID, OTHER = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11", "77aa2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
MAIN, SIDE, STRANGE = "ab" * 32, "cd" * 32, "ef" * 32


class Machine:
    """A /proc with processes, and pods with shares of cards."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self.reader = MemoryUseReader(proc=proc)
        self.pods: dict[str, PodView] = {}
        self._entries: list[CheckpointEntry] = []

    def process(self, pid: int, cgroup: str) -> None:
        (self._proc / str(pid)).mkdir()
        (self._proc / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")

    def holds(self, uid: str, container: str, *cards: str) -> None:
        ids = tuple(id_ for card in cards for id_ in memory_ids(card, 4))
        self._entries.append(CheckpointEntry(uid, container, MODEL.memory_resource, ids))

    def runs(self, uid: str, *running: tuple[str, str], api_uid: str = "") -> None:
        asks = [box(name, 4, 10) for name, _ in running] or [box("main", 4, 10)]
        self.pods[uid] = replace(pod_of(api_uid or uid, *asks), kubelet_uid=uid, running=running, phase="Running")

    def rows(self, processes: dict[str, Iterable[CardProcess]]) -> list[dict[str, object]]:
        self.reader.take(1_790_000_000.7, processes)
        document = self.reader.document(self.snapshot())
        assert document is not None
        assert document["at"] == 1_790_000_000
        rows: list[dict[str, object]] = document["containers"]
        return sorted(rows, key=lambda row: [str(row.get(name, "")) for name in ("card", "uid", "container")])

    def snapshot(self) -> Snapshot:
        ledger = Ledger.of_entries(self._entries, MODEL, Ledger())
        view = NodeView(model=MODEL, policy=Policy.FIRST_FIT, slots=(), pods=self.pods, ledger=ledger, promises={})
        return Snapshot(view, self.pods, checkpoint_read=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def row(card: str, uid: str = "", container: str = "", *, n: int = 1, mib: int | None = 0) -> dict[str, object]:
    whole = {"card": card, "uid": uid, "container": container, "processes": n, "memory_mib": mib}
    return {name: value for name, value in whole.items() if value not in ("", None)}


def test_before_the_first_measurement_nothing_is_known(machine: Machine) -> None:
    assert machine.reader.document(machine.snapshot()) is None


def test_two_containers_of_a_pod_each_have_their_own(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    machine.holds(UID, "side", "GPU-1")
    machine.runs(UID, ("main", MAIN), ("side", SIDE))
    machine.process(1, f"/kubepods/pod{UID}/{MAIN}")
    machine.process(2, f"/kubepods/pod{UID}/{SIDE}")
    machine.process(3, f"/kubepods/pod{UID}/{SIDE}/below")
    found = machine.rows({"GPU-1": [CardProcess(1, 5 * MIB), CardProcess(2, MIB), CardProcess(3, MIB + 1)]})
    assert found == [row("GPU-1", UID, "main", mib=5), row("GPU-1", UID, "side", n=2, mib=2)]


def test_a_pod_on_two_cards_uses_each_and_one_idles(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1", "GPU-2", "GPU-3")
    machine.runs(UID, ("main", MAIN))
    machine.process(1, f"/kubepods/pod{UID}/{MAIN}")
    same = CardProcess(1, 5 * MIB)
    found = machine.rows({"GPU-1": [same], "GPU-2": [replace(same, memory_bytes=7 * MIB)], "GPU-3": []})
    assert found == [
        row("GPU-1", UID, "main", mib=5),
        row("GPU-2", UID, "main", mib=7),
        row("GPU-3", UID, "main", n=0),
    ]


def test_a_card_that_was_not_measured_says_nothing_of_its_pods(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    machine.runs(UID, ("main", MAIN))
    assert machine.rows({"GPU-2": []}) == []


def test_processes_of_no_pod_stand_apart(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    machine.process(1, "/system.slice/display-manager.service")
    machine.process(2, "/user.slice/user-1000.slice")
    found = machine.rows({"GPU-1": [CardProcess(1, 5 * MIB), CardProcess(2, MIB)]})
    assert found == [row("GPU-1", n=2, mib=6), row("GPU-1", UID, "main", n=0)]


def test_a_pod_without_a_share_is_named(machine: Machine) -> None:
    machine.process(1, f"/kubepods/pod{OTHER}/{STRANGE}")
    assert machine.rows({"GPU-1": [CardProcess(1, MIB)]}) == [row("GPU-1", OTHER, mib=1)]


def test_a_process_that_has_ended_uses_nothing(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    assert machine.rows({"GPU-1": [CardProcess(1, MIB)]}) == [row("GPU-1", UID, "main", n=0)]


def test_one_process_whose_memory_is_not_known_hides_the_sum(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    machine.runs(UID, ("main", MAIN))
    machine.process(1, f"/kubepods/pod{UID}/{MAIN}")
    machine.process(2, f"/kubepods/pod{UID}/{MAIN}")
    found = machine.rows({"GPU-1": [CardProcess(1, None), CardProcess(2, MIB)]})
    assert found == [row("GPU-1", UID, "main", n=2, mib=None)]


def test_before_the_api_tells_of_a_start_the_only_holder_is_taken(machine: Machine) -> None:
    machine.holds(UID, "main", "GPU-1")
    machine.holds(OTHER, "one", "GPU-1")
    machine.holds(OTHER, "two", "GPU-1")
    machine.process(1, f"/kubepods/pod{UID}/{MAIN}")
    machine.process(2, f"/kubepods/pod{UID}/{STRANGE}")
    machine.process(3, f"/kubepods/pod{OTHER}/{SIDE}")
    found = machine.rows({"GPU-1": [CardProcess(pid, MIB) for pid in (1, 2, 3)]})
    assert found == [
        row("GPU-1", UID, "main", n=2, mib=2),
        row("GPU-1", OTHER, mib=1),  # of one of two, so that neither uses nothing for sure
    ]


def test_a_static_pod_has_the_uid_of_its_object(machine: Machine) -> None:
    static = "0f3c" * 8
    machine.holds(static, "main", "GPU-1")
    machine.runs(static, ("main", MAIN), api_uid=UID)
    machine.process(1, f"/kubepods/pod{static}/{MAIN}")
    assert machine.rows({"GPU-1": [CardProcess(1, MIB)]}) == [row("GPU-1", UID, "main", mib=1)]
