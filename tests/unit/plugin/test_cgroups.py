"""Which pod and container a process belongs to, by every name that kubelet and the runtimes give its cgroups."""

from pathlib import Path

import pytest

from edgegpu_plugin.containers.cgroups import CgroupOwner, any_runs, owner_of, owner_of_process

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
