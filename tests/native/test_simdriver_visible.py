"""What a container sees: the cards whose device files it got, counted anew."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, make_card

MIB = 1 << 20


def _container(box: SimDriver, root: Path, *devices: str) -> Path:
    """A root that links to the box's libraries and shared folder and has only these device files."""
    (root / "dev/nvidia-caps").mkdir(parents=True)
    (root / "usr").symlink_to(box.root / "usr")
    (root / "var").symlink_to(box.root / "var")
    for name in ("nvidiactl", "nvidia-uvm", *devices):
        (root / "dev" / name).touch()
    return root / "usr/lib/x86_64-linux-gnu"


def test_indexes_count_what_is_seen(
    box: SimDriver, tmp_path: Path, two_cards: list[SimCard], child: Callable[..., Child]
) -> None:
    inside = child(_container(box, tmp_path / "inside", "nvidia1"))
    inside.call("nvmlInit")
    assert inside.call("nvmlDeviceGetCount") == 1
    assert inside.call("nvmlDeviceGetUUID", ["dev", 0]) == two_cards[1].uuid
    assert inside.call("nvmlDeviceGetIndex", ["dev", 0]) == 0
    assert inside.call("nvmlDeviceGetMinorNumber", ["dev", 0]) == 1
    inside.open_cuda()
    assert inside.call("cuDeviceGetCount", "&int") == [0, 1]
    inside.alloc(77)
    assert box.used_mib(two_cards[1].uuid) == 77


def test_no_card_at_all(box: SimDriver, tmp_path: Path, child: Callable[..., Child]) -> None:
    libraries = _container(box, tmp_path / "inside")
    inside = child(libraries)
    inside.call("nvmlInit")
    assert inside.call("nvmlDeviceGetCount") == 0
    assert inside.call("cuInit", 0) == [100]
    smi = subprocess.run(
        [box.nvidia_smi], env={"LD_LIBRARY_PATH": str(libraries)}, capture_output=True, text=True, check=False
    )
    assert (smi.returncode, smi.stdout) == (6, "No devices were found\n")


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib", "lib/x86_64-linux-gnu", "lib64", "lib"])
def test_the_root_is_found_from_each_usual_folder(
    box: SimDriver, tmp_path: Path, child: Callable[..., Child], folder: str
) -> None:
    root = tmp_path / "inside"
    (root / folder).mkdir(parents=True)
    for path in box.libraries.iterdir():
        (root / folder / path.name).symlink_to(path)
    for name in ("dev", "var"):
        (root / name).symlink_to(box.root / name)
    inside = child(root / folder)
    inside.call("nvmlInit")
    assert inside.call("nvmlDeviceGetCount") == 2


@pytest.fixture
def split(tmp_path: Path, simdriver_build: Path) -> tuple[SimDriver, list[SimCard]]:
    cards = [make_card(0, "NVIDIA A100", 40960, profiles=["1g.5gb", "3g.20gb"]), make_card(1, "Tesla T4", 8192)]
    return SimDriver.create(tmp_path / "split", cards, build=simdriver_build), cards


def test_mig_instances(split: tuple[SimDriver, list[SimCard]], child: Callable[..., Child]) -> None:
    box, cards = split
    process = child(box.libraries)
    process.call("nvmlInit")
    assert process.call("nvmlDeviceGetMigMode", ["dev", 0]) == [1, 1]
    assert process.call("nvmlDeviceGetMaxMigDeviceCount", ["dev", 0]) == 7
    assert process.code("nvmlDeviceGetMigDeviceHandleByIndex", ["dev", 0], 2) == 6
    for at, mig in enumerate(cards[0].mig):
        dev = ["mig", 0, at]
        assert process.call("nvmlDeviceIsMigDeviceHandle", dev) == 1
        assert process.call("nvmlDeviceGetUUID", dev) == mig.uuid
        assert process.call("nvmlDeviceGetName", dev) == f"NVIDIA A100 MIG {mig.profile}"
        assert process.call("nvmlDeviceGetMemoryInfo", dev)["total"] == mig.mib * MIB
        assert process.call("nvmlDeviceGetGpuInstanceId", dev) == mig.gi
        assert process.call("nvmlDeviceGetComputeInstanceId", dev) == mig.ci
        assert process.call("nvmlDeviceGetAttributes", dev)["memorySizeMB"] == mig.mib
        assert process.code("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", dev) == 0
    assert process.code("nvmlDeviceGetUtilizationRates", ["dev", 0]) == 3


def test_cuda_on_an_instance_counts_on_it_and_on_its_card(
    split: tuple[SimDriver, list[SimCard]], child: Callable[..., Child]
) -> None:
    box, cards = split
    mig = cards[0].mig[1]
    user = child(box.libraries, env={"CUDA_VISIBLE_DEVICES": mig.uuid})
    user.call("nvmlInit")
    user.open_cuda()
    assert user.call("cuMemGetInfo_v2", "&u64", "&u64") == [0, mig.mib * MIB, mig.mib * MIB]
    user.alloc(1000)
    assert box.used_mib(mig.uuid) == box.used_mib(cards[0].uuid) == 1000
    assert box.used_mib(cards[0].mig[0].uuid) == 0
    [seen] = user.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])
    assert (seen["gpuInstanceId"], seen["usedGpuMemory"]) == (mig.gi, 1000 * MIB)


def test_an_instance_needs_both_of_its_cap_files(
    split: tuple[SimDriver, list[SimCard]], tmp_path: Path, child: Callable[..., Child]
) -> None:
    box, cards = split
    first, second = cards[0].mig
    caps = [f"nvidia-caps/nvidia-cap{cap}" for cap in (first.caps[0], *second.caps)]
    inside = child(_container(box, tmp_path / "inside", "nvidia0", *caps))
    inside.call("nvmlInit")
    assert inside.call("nvmlDeviceGetUUID", ["mig", 0, 0]) == second.uuid
    assert inside.code("nvmlDeviceGetMigDeviceHandleByIndex", ["dev", 0], 1) == 6
    assert inside.call("cuInit", 0) == [0]
    assert inside.call("cuDeviceGetName", "&buffer", 64, 0) == [0, f"NVIDIA A100 MIG {second.profile}"]
