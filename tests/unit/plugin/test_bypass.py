"""Processes past the limiter: which are found, after how many looks, and which are killed."""

import mmap
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.held.bypass import BypassDetector, CountedContainer

CARD, OTHER = "GPU-1", "GPU-2"
MIB = 1 << 20
UID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
KEY = (UID, "main")
GROUP = f"/kubepods/besteffort/pod{UID}/{'ab' * 32}"


class Machine:
    """A /proc with processes, and one container that is held to 1 GiB."""

    def __init__(self, folder: Path, *, kills: bool = False) -> None:
        self.proc, self.usage = folder / "proc", folder / "usage"
        self.proc.mkdir()
        self.usage.touch()
        self.detector = BypassDetector(kills=kills, proc=self.proc)
        self.held = {KEY: CountedContainer([self.usage], {CARD: 1024 * MIB})}

    def process(self, pid: int, *, counts: bool, group: str = GROUP, began: str = "77") -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        inode = self.usage.stat().st_ino + (not counts)
        lines = ["5571-5572 r-xp 00000000 fe:01 12 /bin/app", f"7f71-7f72 rw-s 00000000 00:1b {inode} /usage"]
        (folder / "maps").write_text("\n".join([*lines, "7ffc-7ffd rw-p 00000000 00:00 0 [stack]", ""]))
        (folder / "cgroup").write_text(f"0::{group}\n")
        (folder / "stat").write_text(f"{pid} (a b) c) S {' '.join(['0'] * 18)} {began} 0\n")

    def look(self, *processes: CardProcess, card: str = CARD) -> bool:
        return self.detector.look({card: processes}, self.held, _key)

    @property
    def reason(self) -> str:
        return self.detector.reason(KEY)


def _key(owner: CgroupOwner) -> tuple[str, str]:
    return owner.pod_uid, "main"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_process_that_counts_is_no_bypass(machine: Machine) -> None:
    machine.process(7, counts=True)
    for _ in range(3):
        assert not machine.look(CardProcess(7, 1024 * MIB))
    assert machine.reason == ""


def test_a_process_that_does_not_count_is_told_at_the_second_look_until_it_is_gone(machine: Machine) -> None:
    machine.process(7, counts=False)
    assert not machine.look(CardProcess(7, MIB))
    assert machine.reason == ""
    assert machine.look(CardProcess(7, MIB))
    assert machine.reason == "process 7 uses card GPU-1 past the limiter"
    assert not machine.look(CardProcess(7, MIB))
    assert machine.look()
    assert machine.reason == ""


def test_the_driver_of_its_image_that_a_process_past_the_limiter_uses_is_named(
    machine: Machine, tmp_path: Path
) -> None:
    limiter = tmp_path / "libcuda.so.1"
    limiter.touch()
    machine.held[KEY] = replace(machine.held[KEY], limiter=limiter)

    def seen(*mapped: str) -> str:
        machine.process(7, counts=False)
        maps = machine.proc / "7/maps"
        lines = (f"7f71-7f72 r-xp 00000000 fe:01 {99 + number} {path}" for number, path in enumerate(mapped))
        maps.write_text("\n".join([*lines, "7ffc-7ffd rw-p 00000000 00:00 0 [stack]", ""]))
        machine.look()
        machine.look(CardProcess(7, MIB))
        assert machine.detector.own_driver(KEY) == "", "one look may have seen it begin"
        machine.look(CardProcess(7, MIB))
        return machine.detector.own_driver(KEY)

    assert seen("/bin/app", "/opt/cuda compat/libcuda.so.550.54") == "/opt/cuda compat/libcuda.so.550.54"
    machine.look()
    assert machine.detector.own_driver(KEY) == "", "the process has ended"
    assert seen("/run/edgegpu/container/driver/libcuda.so.1") == "", "the node's, by its path"
    older = "/usr/lib64/libcuda.so.1 (deleted)", f"/usr/lib/{platform.machine()}-linux-gnu/libcuda.so.550.54"
    assert seen(*older, "/run/edgegpu/container/driver/libcuda.so.1") == "", "what was mounted before an upgrade"
    assert seen("/lib/libcuda.so.1 (deleted)") == "", "the same where the image has a link in place of its folder"
    assert seen(*older, "/usr/lib64/compat/libcuda.so.1") == "/usr/lib64/compat/libcuda.so.1"
    assert seen("/bin/app", "/lib/libcudart.so.12") == ""
    (machine.proc / "7").mkdir(exist_ok=True)
    own = f"/opt/libcuda.so.1\n7f81-7f82 r-xp 00000000 fe:01 {limiter.stat().st_ino} /usr/lib64/libcuda.so.1"
    assert seen(own) == "", "it has the limiter too: it went to a driver by a path"
    for before in ("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1 (deleted)"):
        assert seen("/bin/app", before) == "", "the limiter of before an upgrade"
    assert seen("/usr/lib64/libcuda.so.1", "/opt/libcuda.so.1") == "/opt/libcuda.so.1"
    machine.held[KEY] = replace(machine.held[KEY], limiter=None)
    assert seen("/opt/libcuda.so.1") == ""


def test_who_draws_alone_where_graphics_is_open_is_no_bypass_and_counts(machine: Machine) -> None:
    machine.process(7, counts=False)
    draws = CardProcess(7, 30 * MIB, computes=False)
    machine.held[KEY] = replace(machine.held[KEY], draws=True)
    for _ in range(3):
        assert not machine.look(draws)
    assert machine.detector.uses == {(KEY, CARD): 30 * MIB}
    machine.look(replace(draws, computes=True))
    assert machine.look(replace(draws, computes=True)), "it has a CUDA context as well"
    machine.held[KEY] = replace(machine.held[KEY], draws=False)
    machine.look()
    machine.look(draws)
    assert machine.look(draws)
    assert machine.reason == "process 7 uses card GPU-1 past the limiter"


def test_what_was_told_stays_while_the_driver_lists_no_processes_of_the_card(machine: Machine) -> None:
    machine.process(7, counts=False)
    machine.process(8, counts=True)
    for _ in range(2):
        machine.look(CardProcess(7, MIB), CardProcess(8, 1200 * MIB))
    told = machine.reason
    assert "process 7" in told
    assert "1201 MiB" in told
    assert machine.detector.is_unsaid(KEY, CARD) is False
    assert not machine.look(card=OTHER)
    assert (machine.reason, machine.detector.is_unsaid(KEY, CARD)) == (told, True)
    assert not machine.look(CardProcess(7, MIB), CardProcess(8, 1200 * MIB))
    assert machine.look()
    assert machine.reason == ""


def test_a_process_without_a_figure_leaves_the_containers_unsaid(machine: Machine) -> None:
    machine.process(7, counts=True)
    machine.look(CardProcess(7, None))
    assert machine.detector.is_unsaid(KEY, CARD)


def test_another_process_of_the_same_number_begins_anew(machine: Machine) -> None:
    machine.process(7, counts=False)
    machine.look(CardProcess(7, MIB))
    machine.process(7, counts=False, began="78")
    assert not machine.look(CardProcess(7, MIB))
    assert machine.look(CardProcess(7, MIB))


def test_processes_that_are_past_the_limiter_one_after_the_other_are_told_at_the_fourth_look(tmp_path: Path) -> None:
    """Each is killed at no look: one that is just replacing itself by another program looks the same for a moment."""
    machine = Machine(tmp_path, kills=True)
    for pid in (7, 8, 9, 10):
        machine.process(pid, counts=False)
    for pid in (7, 8, 9):
        assert not machine.look(CardProcess(pid, MIB))
    assert machine.look(CardProcess(10, MIB))
    assert machine.reason == "processes use card GPU-1 past the limiter, one after the other"
    assert not machine.detector.look({OTHER: []}, machine.held, _key)
    assert not machine.look()
    assert machine.look()
    assert machine.reason == ""


def test_a_process_that_replaces_itself_now_and_then_is_not_told(machine: Machine) -> None:
    for pid, counts in enumerate([False, False, True, False, True, True, False, False], start=7):
        machine.process(pid, counts=counts)
        assert not machine.look(CardProcess(pid, MIB))
    assert machine.reason == ""


def test_memory_of_an_ended_process_that_nobody_saw_alive_is_logged_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has ended since the driver was asked is listed no more by the next looks."""
    words = "has ended and still counts on a card"
    machine.look(CardProcess(8, MIB))
    for _ in range(5):
        machine.look(CardProcess(7, 5000 * MIB))
        machine.detector.look({}, machine.held, _key)
    assert caplog.text.count(f"process 7 {words}") == caplog.text.count(words) == 1


def test_who_is_held_by_nobody_or_ends_just_now_is_left_alone(machine: Machine) -> None:
    machine.process(7, counts=False, group="/system.slice/ssh.service")
    machine.process(8, counts=False, group=GROUP.replace(UID, UID.replace("3", "4")))
    machine.process(9, counts=False)
    (machine.proc / "9/maps").write_text("")
    for _ in range(3):
        assert not machine.look(CardProcess(7, MIB), CardProcess(8, MIB), CardProcess(9, MIB), CardProcess(10, MIB))


def test_what_a_process_leaves_to_its_children_still_counts(machine: Machine) -> None:
    """The driver frees it when the last of the device files is closed, which a forked child may hold open."""
    machine.process(7, counts=True)
    machine.process(8, counts=True)
    machine.look(CardProcess(7, 900 * MIB), CardProcess(8, 900 * MIB))
    shutil.rmtree(machine.proc / "7")
    (machine.proc / "8/stat").write_text(f"8 (a b) c) Z {' '.join(['0'] * 18)} 77 0\n")
    (machine.proc / "8/cgroup").write_text("0::/\n")
    for _ in range(2):
        machine.look(CardProcess(7, 900 * MIB), CardProcess(8, 900 * MIB))
    assert machine.detector.uses == {(KEY, CARD): 1800 * MIB}
    assert machine.reason == "it uses 1800 MiB of card GPU-1 by the driver's count, and may use 1024"
    machine.look()
    machine.look(CardProcess(7, 900 * MIB))
    assert machine.detector.uses == {}, "another one with its number, by now"


def test_more_than_the_limit_by_the_drivers_count_is_told(machine: Machine) -> None:
    for pid in (7, 8):
        machine.process(pid, counts=True)
    for _ in range(2):
        assert not machine.look(CardProcess(7, 1000 * MIB), CardProcess(8, 44 * MIB))
    assert not machine.look(CardProcess(7, 1000 * MIB), CardProcess(8, 45 * MIB))
    assert machine.look(CardProcess(7, 1000 * MIB), CardProcess(8, 45 * MIB))
    assert machine.reason == "it uses 1045 MiB of card GPU-1 by the driver's count, and may use 1024"
    assert machine.look(CardProcess(7, None), CardProcess(8, 2000 * MIB))  # the driver does not tell of each
    assert machine.reason == ""


def test_a_card_that_the_container_was_not_given_counts_from_the_first_byte(machine: Machine) -> None:
    machine.process(7, counts=True)
    machine.look(CardProcess(7, MIB), card=OTHER)
    assert machine.look(CardProcess(7, MIB), card=OTHER)
    assert machine.reason == "it uses 1 MiB of card GPU-2 by the driver's count, and may use 0"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child
        child.kill()


def test_none_is_killed_where_that_would_fault_clients_of_mps(tmp_path: Path) -> None:
    machine = Machine(tmp_path, kills=True)
    machine.held[KEY] = replace(machine.held[KEY], is_spared=True)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        machine.process(alive.pid, counts=False)
        for _ in range(3):
            machine.look(CardProcess(alive.pid, MIB))
        assert machine.reason
        assert alive.communicate(b"here", timeout=30)[0] == b"here"


@pytest.mark.parametrize("kills", [True, False])
def test_it_is_killed_where_the_setting_says_so(tmp_path: Path, child: subprocess.Popen[bytes], *, kills: bool) -> None:
    machine = Machine(tmp_path, kills=kills)
    machine.process(child.pid, counts=False)
    machine.look(CardProcess(child.pid, MIB))
    assert child.poll() is None
    machine.look(CardProcess(child.pid, MIB))
    assert machine.reason
    if kills:
        assert child.wait(30) == -9
    else:
        assert child.poll() is None


def test_who_uses_too_much_and_counts_is_not_killed(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    machine = Machine(tmp_path, kills=True)
    machine.process(child.pid, counts=True)
    for _ in range(3):
        machine.look(CardProcess(child.pid, 2048 * MIB))
    assert machine.reason
    assert child.poll() is None


def test_the_kernels_own_files_are_read(machine: Machine) -> None:
    pid = os.getpid()
    machine.process(pid, counts=False)
    for name in ("maps", "stat"):
        (machine.proc / str(pid) / name).unlink()
        (machine.proc / str(pid) / name).symlink_to(f"/proc/self/{name}")
    machine.usage.write_bytes(bytes(4096))
    with machine.usage.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        for _ in range(2):
            assert not machine.look(CardProcess(pid, MIB))
    machine.look(CardProcess(pid, MIB))
    assert machine.look(CardProcess(pid, MIB))
    assert machine.reason == f"process {pid} uses card GPU-1 past the limiter"
