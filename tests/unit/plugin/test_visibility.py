"""Whether a container that runs sees the card which kubelet gave it, whatever was to bring it in."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import MODEL, box, pod_of

from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.ledger import CheckpointEntry, Ledger
from edgegpu_core.nodeview import NodeView
from edgegpu_core.placement import Policy
from edgegpu_plugin.containers.visibility import VisibilityCheck
from edgegpu_plugin.records.node_state import Snapshot

ID = "ab" * 32
CARD = Card(uuid="GPU-1", index=1, name="T4", memory_mib=7611, pci="0000:01:00.0", minor=1)


class Machine:
    """A /dev with two cards, and a /proc with processes of containers."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.dev = folder / "proc", folder / "dev"
        self.dev.mkdir()
        self.proc.mkdir()
        for name in ("nvidia0", "nvidia1"):
            (self.dev / name).touch()
        self.sight = VisibilityCheck(dev=self.dev, cards=lambda: [CARD], proc=self.proc)

    def process(self, pid: int, *, cgroup: str, nodes: tuple[str, ...] = ()) -> Path:
        folder = self.proc / str(pid)
        (folder / "root/dev").mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        for name in nodes:
            (folder / "root/dev" / name).touch()
        return folder

    def seen(self, id_: str = ID) -> list[tuple[str, tuple[str, ...]]]:
        pod = replace(pod_of("u", box("main", 4, 10)), phase="Running", running=(("main", id_),))
        some = {MODEL.memory_resource: memory_ids("GPU-1", 4), MODEL.core_resource: core_ids("GPU-1")[:10]}
        entries = [CheckpointEntry("u", "main", name, tuple(ids)) for name, ids in some.items()]
        ledger = Ledger.of_entries(entries, MODEL, Ledger())
        view = NodeView(model=MODEL, policy=Policy.FIRST_FIT, slots=(), pods={"u": pod}, ledger=ledger, promises={})
        found = self.sight.check(Snapshot(view, {"u": pod}, checkpoint_read=True))
        return [(one.container, one.cards) for one in found]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods/besteffort/podu/{ID}",
        f"/kubepods.slice/kubepods-podu.slice/cri-containerd-{ID}.scope",
        f"/kubepods/podu/{ID}/below",
    ],
)
def test_a_container_with_its_card(machine: Machine, cgroup: str) -> None:
    machine.process(4711, cgroup=cgroup, nodes=("nvidia1", "nvidiactl"))
    assert machine.seen() == []


@pytest.mark.parametrize("nodes", [(), ("nvidia0",), ("nvidiactl",)])
def test_a_container_without_its_card(machine: Machine, nodes: tuple[str, ...]) -> None:
    machine.process(17, cgroup="/init.scope", nodes=("nvidia1",))
    machine.process(4711, cgroup=f"/kubepods/podu/{ID}", nodes=nodes)
    assert machine.seen() == [("main", ("GPU-1",))]
    assert machine.seen() == [("main", ("GPU-1",))]
    assert machine.seen("cd" * 32) == []  # another start of it is looked at anew


def test_what_an_author_put_there_is_neither_followed_nor_believed(machine: Machine) -> None:
    folder = machine.process(4711, cgroup=f"/kubepods/podu/{ID}")
    (folder / "root/dev/nvidia1").symlink_to(machine.dev / "nvidia1")
    assert machine.seen() == [("main", ("GPU-1",))]


def test_a_dev_that_is_a_link_is_not_looked_at(machine: Machine) -> None:
    folder = machine.process(4711, cgroup=f"/kubepods/podu/{ID}")
    (folder / "root/dev").rmdir()
    (folder / "root/dev").symlink_to(machine.dev)
    assert machine.seen() == []


def test_a_process_that_is_not_to_be_seen_is_looked_for_a_few_times(machine: Machine) -> None:
    for _ in range(10):
        assert machine.seen() == []
    machine.process(4711, cgroup=f"/kubepods/podu/{ID}")
    assert machine.seen() == []


def test_a_machine_without_the_node_itself_says_nothing(machine: Machine) -> None:
    machine.process(4711, cgroup=f"/kubepods/podu/{ID}")
    os.unlink(machine.dev / "nvidia1")  # noqa: PTH108
    assert machine.seen() == []
