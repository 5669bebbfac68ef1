"""Containers whose programs may not write their usage file: found by the mark of a real process, told until one may."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kits.openedfiles import opened_files
from property.cases import box as container
from property.cases import pod_of
from unit.plugin.test_isolation import MEMORY, Box

from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.bypass import CountedContainer
from edgegpu_plugin.containers.held.reasons import UNWRITABLE
from edgegpu_plugin.containers.held.unwritable_usage import UnwritableUsage

UID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
KEY, OTHER = (UID, "main"), ("3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b12", "main")
MARK, ANOTHER = "edgegpu-usage-unwritable", "edgegpu-usage-unwritable (deleted)"
PROGRAM = """
import mmap, os, sys
file = os.memfd_create(sys.argv[1])
os.ftruncate(file, 4096)
mapped = mmap.mmap(file, 4096)
os.close(file)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(proc: Path, uid: str, mark: str) -> Iterator[Callable[[], None]]:
    """Run a program of a pod that has mapped such a mark; yield what ends it."""
    command = [sys.executable, "-c", PROGRAM, mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        folder = proc / str(child.pid)
        folder.mkdir(parents=True)
        for name in ("maps", "stat", "task"):
            (folder / name).symlink_to(f"/proc/{child.pid}/{name}")
        (folder / "cgroup").write_text(f"0::/kubepods/besteffort/pod{uid}/{'ab' * 32}\n")

        def end() -> None:
            child.kill()
            child.wait()

        yield end
        end()


class Machine:
    """Two containers' folders, and a /proc with the processes that a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.folders = ContainerFolders(root=folder / "containers", proc=Path("/proc"))
        self.usage = {key: folder / f"containers/{key[0]}/usage" for key in (KEY, OTHER)}
        for key in self.usage:
            self.start(key)
        self.unwritable = UnwritableUsage(proc=self.proc)

    def start(self, key: tuple[str, str]) -> None:
        self.folders.make(self.usage[key].parent, "edgegpu-limits 1\n")

    def write(self, key: tuple[str, str]) -> None:
        """Have a program of a container begin its usage file."""
        with self.usage[key].open("r+b") as file:
            file.write(b"MLGE")

    def look(self) -> bool:
        def key_of(owner: CgroupOwner) -> tuple[str, str]:
            return owner.pod_uid, "main"

        held = {key: CountedContainer([path], {}) for key, path in self.usage.items()}
        return self.unwritable.look(held, key_of)

    def told(self) -> list[str]:
        return [self.unwritable.reason(key) for key in (KEY, OTHER)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_container_with_the_mark_is_told_until_a_program_of_it_has_written_the_file(machine: Machine) -> None:
    assert not machine.look()
    assert machine.told() == ["", ""]
    with running(machine.proc, UID, MARK) as end:
        assert machine.look()
        assert machine.told() == [UNWRITABLE, ""]
        end()
        assert not machine.look(), "an end says nothing of what the next one may"
        assert machine.told() == [UNWRITABLE, ""]
    machine.start(KEY)
    assert not machine.look(), "nor does a start"
    machine.write(KEY)
    assert machine.look()
    assert machine.told() == ["", ""]


def test_a_mark_beside_a_program_that_writes_the_file_counts_nothing(machine: Machine) -> None:
    machine.write(KEY)
    with running(machine.proc, UID, MARK):
        assert not machine.look()
    assert machine.told() == ["", ""]


def test_processes_of_others_are_not_read_at_each_look_while_a_container_has_not_used_its_card(
    machine: Machine,
) -> None:
    for pid in range(1, 301):
        folder = machine.proc / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text("0::/system.slice/ssh.service\n")
    with running(machine.proc, UID, "x"):
        reads = []
        for _ in range(4):
            with opened_files(machine.proc) as opened:
                machine.look()
            reads.append(len([path for path in opened if path.endswith("/cgroup")]))
    assert reads[0] > 300
    assert reads[2:] == [1, 1], "that of the container alone"


@pytest.mark.parametrize(("uid", "mark"), [(UID, ANOTHER), (UID, "x"), ("3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b13", MARK)])
def test_another_name_and_another_pod_are_no_mark(machine: Machine, uid: str, mark: str) -> None:
    with running(machine.proc, uid, mark):
        assert not machine.look()
    assert machine.told() == ["", ""]


def test_such_a_container_is_degraded_and_its_pod_has_an_event(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.state.replace_pods([replace(pod_of(UID, container("main", 4, 10)), running=(("main", "ab" * 32),))])
    box.book(UID, MEMORY)
    box.limiter.prepare(UID, "main")
    assert getattr(box.state_of(UID), "state", "") == "enforced"
    assert not list(box.limiter.notes(box.state.snapshot(), by_runtime=False))
    with running(tmp_path / "proc", UID, MARK):
        assert box.limiter.look({})
    told = box.state_of(UID)
    assert (getattr(told, "state", ""), getattr(told, "reason", "")) == ("degraded", UNWRITABLE)
    (event,) = box.limiter.notes(box.state.snapshot(), by_runtime=False)
    assert (event.pod.uid, event.container, event.reason, event.text) == (UID, "main", "GPUUsageFile", UNWRITABLE)
    assert getattr(told, "notes", None) == (), "doctor says it of the state"
