"""Which pod and container a process belongs to, by every name that kubelet and the runtimes give its cgroups."""

import os
from pathlib import Path

import pytest
from kits.openedfiles import opened_files

from edgegpu_plugin.containers.cgroups import CgroupOwner, PodProcesses, any_runs, owner_of, owner_of_process

UID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
UNIT = UID.replace("-", "_")
STATIC = "0f3c" * 8
ID, OUTER = "ab" * 32, "cd" * 32
SLICE = f"kubepods-burstable-pod{UNIT}.slice"


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{UNIT}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNIT}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/docker-{ID}.scope",
        f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNIT}.slice/cri-containerd-{ID}.scope",
        f"/system.slice/k3s.service/kubepods/besteffort/pod{UID}/{ID}",
        f"/docker/{OUTER}/kubepods/besteffort/pod{UID}/{ID}",
        f"/../../kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/besteffort/pod{UID}/{ID}/init.scope",
        f"/kubepods/besteffort/pod{UID}/{ID}/docker/{OUTER}",
        f"/kubepods/besteffort/pod{UID}/{ID}/kubepods/pod{UID[::-1].replace('-', '0')}/{OUTER}",
    ],
)
def test_a_container_of_a_pod(path: str) -> None:
    owner = CgroupOwner(UID, ID)
    assert owner_of(f"0::{path}\n") == owner
    version1 = f"12:pids:{path}\n11:memory:{path}\n1:name=systemd:{path}\n0::/system.slice/k3s.service\n"
    assert owner_of(version1) == owner


@pytest.mark.parametrize(
    "path", [f"/kubepods/pod{STATIC}/{ID}", f"/kubepods.slice/kubepods-pod{STATIC}.slice/x-{ID}.scope"]
)
def test_a_static_pod_has_a_hash_for_its_uid(path: str) -> None:
    assert owner_of(f"0::{path}\n") == CgroupOwner(STATIC, ID)


@pytest.mark.parametrize("path", [f"/kubepods/burstable/pod{UID}", f"/kubepods/burstable/pod{UID}/other"])
def test_a_pod_whose_container_is_not_named(path: str) -> None:
    assert owner_of(f"0::{path}\n") == CgroupOwner(UID, "")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/system.slice/docker.service",
        f"/docker/{OUTER}",
        "/user.slice/user-1000.slice/session-3.scope",
        "/kubepods.slice",
        "/kubepods/besteffort",
        f"/user.slice/pod{UID}/{ID}",
        f"/kubepods/podcast-{UID}/{ID}",
        f"/kubepods/pod{UID}0/{ID}",
    ],
)
def test_a_process_of_no_pod(path: str) -> None:
    assert owner_of(f"0::{path}\n") is None


@pytest.mark.parametrize("text", ["", "\n", "0::", "kubepods" * 5_000, "0::/kubepods" + "/pod" * 10_000])
def test_any_text_is_read(text: str) -> None:
    assert owner_of(text) is None


@pytest.mark.parametrize(
    ("state", "threads", "is_there"), [("S", 1, True), ("Z", 2, True), ("Z", 1, False), ("X", 0, False)]
)
def test_a_process_that_has_ended_and_is_listed_all_the_same_is_of_no_pod(
    tmp_path: Path, state: str, threads: int, *, is_there: bool
) -> None:
    process = tmp_path / "7"
    process.mkdir()
    (process / "cgroup").write_text(f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    (process / "stat").write_text(f"7 (a) S) {state}{' 0' * 16} {threads} 0 77 0\n")
    assert owner_of_process(7, tmp_path) == (CgroupOwner(UID, ID) if is_there else None)
    (process / "cgroup").unlink()
    assert owner_of_process(7, tmp_path) is None


def test_whether_a_process_of_some_pods_is_alive(tmp_path: Path) -> None:
    for number, state in ((7, "S"), (8, "Z")):
        process = tmp_path / str(number)
        process.mkdir()
        (process / "cgroup").write_text(f"0::/kubepods/burstable/pod{UID[:-1]}{number}/{ID}\n")
        (process / "stat").write_text(f"{number} (a) {state}{' 0' * 16} 1 0 77 0\n")
    assert any_runs({"other", f"{UID[:-1]}7"}, tmp_path)
    assert not any_runs({f"{UID[:-1]}8"}, tmp_path)
    assert not any_runs({"other"}, tmp_path)
    assert not any_runs((), tmp_path / "no proc")


OTHER = UID.replace("3c8f", "4d90")
HELD, ELSEWHERE, SYSTEM = f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{OTHER}/{ID}", "/system.slice/k3s.service"


def _listed(proc: Path, pid: int, group: str) -> None:
    """Put a process into a /proc; where its number is another's, the folder is another one, as the kernel has it."""
    new = proc / "new"
    new.mkdir()
    (new / "cgroup").write_text(f"0::{group}\n")
    (new / "stat").write_text(f"{pid} (python) S {' '.join(['1'] * 17)}\n")
    if (proc / str(pid)).exists():
        (proc / str(pid)).rename(proc / f"ended-{pid}")
    new.rename(proc / str(pid))


def _reads(processes: PodProcesses, *pods: str) -> tuple[list[int], int]:
    """Return the processes of some pods, and how many processes were read for it."""
    with opened_files(processes.proc) as opened:
        found = processes.of(pods)
    return sorted(found), sum(path.endswith("/cgroup") for path in opened)


def test_what_is_of_no_pod_is_read_at_two_looks_and_what_is_of_a_pod_at_one(tmp_path: Path) -> None:
    for pid, group in enumerate((HELD, ELSEWHERE, SYSTEM, SYSTEM), start=1):
        _listed(tmp_path, pid, group)
    processes = PodProcesses(proc=tmp_path)
    assert [_reads(processes, UID) for _ in range(3)] == [([1], 4), ([1], 2), ([1], 0)]
    assert _reads(processes, UID, OTHER) == ([1, 2], 0), "also where another pod is asked for"
    _listed(tmp_path, 5, HELD)
    assert _reads(processes, UID) == ([1, 5], 1)


def test_a_process_with_the_number_of_one_that_has_ended_is_read(tmp_path: Path) -> None:
    _listed(tmp_path, 7, SYSTEM)
    processes = PodProcesses(proc=tmp_path)
    for _ in range(3):
        assert processes.of([UID]) == []
    _listed(tmp_path, 7, HELD)
    assert _reads(processes, UID) == ([7], 1)
    _listed(tmp_path, 8, HELD)
    (tmp_path / "7").rename(tmp_path / "ended-again")
    assert processes.of([UID]) == [8]


def test_a_process_that_the_runtime_moves_into_a_container_after_its_start_is_found(tmp_path: Path) -> None:
    _listed(tmp_path, 7, SYSTEM)
    processes = PodProcesses(proc=tmp_path)
    assert processes.of([UID]) == []
    (tmp_path / "7/cgroup").write_text(f"0::{HELD}\n")
    assert processes.of([UID]) == [7]


def test_the_folder_of_a_real_process_is_the_same_at_each_look() -> None:
    """A kernel with another inode each time would have every process read each time."""
    own = Path(f"/proc/{os.getpid()}")
    processes = PodProcesses(proc=Path("/proc"))
    pinned = os.open(own, os.O_PATH)  # a kernel that lacks memory may else forget the folder between two looks
    with opened_files(own) as opened:
        for _ in range(4):
            processes.of([UID])
    os.close(pinned)
    assert 0 < opened.count("cgroup") <= 2


def test_more_processes_than_are_remembered_are_found_as_well(tmp_path: Path) -> None:
    most, beyond = 5, 3
    for pid in range(1, most + beyond):
        _listed(tmp_path, pid, SYSTEM)
    _listed(tmp_path, most + beyond, HELD)
    processes = PodProcesses(proc=tmp_path, most_known=most)
    looks = [_reads(processes, UID) for _ in range(3)]
    assert [found for found, _ in looks] == [[most + beyond]] * 3
    assert looks[-1][1] == beyond
    assert _reads(processes) == ([], 0), "without a pod nothing is read"
    assert _reads(processes, UID)[1] == most + beyond, "and nothing remembered"
