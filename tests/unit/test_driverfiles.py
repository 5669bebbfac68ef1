"""What of a driver is found below its root, and the device nodes that are made after a boot."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgegpu_plugin.devicenodes import ensure_nodes, link_nodes
from edgegpu_plugin.driverfiles import find
from edgegpu_plugin.driverroot import mig_caps
from edgegpu_plugin.elf import soname
from edgegpu_plugin.errors import PluginError

DEBIAN, RED_HAT = "usr/lib/x86_64-linux-gnu", "usr/lib64"


def lay(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def names(root: Path, version: str = "") -> list[str]:
    return sorted(library.path.name for library in find(root, version=version).libraries)


@pytest.mark.parametrize("folder", [DEBIAN, RED_HAT, "usr/lib/x86_64-linux-gnu/nvidia/current"])
def test_libraries_of_the_driver_s_version_are_found(tmp_path: Path, folder: str) -> None:
    lay(
        tmp_path, f"{folder}/libcuda.so.570.1.2", f"{folder}/libnvidia-ml.so.570.1.2", f"{folder}/libnvcuvid.so.570.1.2"
    )
    lay(tmp_path, f"{folder}/libcuda.so.535.9", f"{folder}/libnvidia-nvvm.so.535.9", f"{folder}/libother.so.570.1.2")
    (tmp_path / folder / "libcuda.so.1").symlink_to("libcuda.so.570.1.2")
    assert names(tmp_path) == ["libcuda.so.570.1.2", "libnvcuvid.so.570.1.2", "libnvidia-ml.so.570.1.2"]
    assert find(tmp_path).version == "570.1.2"


def test_without_a_link_the_highest_version_counts(tmp_path: Path) -> None:
    for version in ("535.99", "570.1", "565.200"):
        lay(tmp_path, f"{DEBIAN}/libcuda.so.{version}", f"{DEBIAN}/libnvidia-ml.so.{version}")
    assert find(tmp_path).version == "570.1"


def test_what_nvml_says_beats_the_file_names(tmp_path: Path) -> None:
    for version in ("535.99", "570.1"):
        lay(tmp_path, f"{DEBIAN}/libcuda.so.{version}", f"{DEBIAN}/libnvidia-ml.so.{version}")
    assert names(tmp_path, "535.99") == ["libcuda.so.535.99", "libnvidia-ml.so.535.99"]


def test_a_driver_without_versions_in_its_names(tmp_path: Path) -> None:
    lay(tmp_path, f"{DEBIAN}/libcuda.so.1", f"{DEBIAN}/libnvidia-ml.so.1")
    found = find(tmp_path)
    assert found.version == ""
    assert [library.names for library in found.libraries] == [("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1",)]


def test_half_a_driver_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, f"{DEBIAN}/libnvidia-ml.so.570.1")
    with pytest.raises(
        PluginError, match=r"cannot find the driver's libcuda.so.570.1 under .*: install the whole driver"
    ):
        find(tmp_path)


def test_all_the_rest_is_found_where_it_is(tmp_path: Path) -> None:
    lay(tmp_path, f"{DEBIAN}/libcuda.so.570.1", f"{DEBIAN}/libnvidia-ml.so.570.1", "usr/bin/nvidia-smi")
    empty = find(tmp_path)
    assert [path.name for path in empty.tools] == ["nvidia-smi"]
    assert (empty.read_only, empty.sockets, empty.mps, empty.control_nodes) == ((), (), None, ())
    lay(tmp_path, "lib/firmware/nvidia/570.1/gsp_ga10x.bin", "run/nvidia-persistenced/socket", "dev/nvidiactl")
    lay(tmp_path, "tmp/nvidia-mps/control", "dev/nvidia-uvm", "usr/bin/nvidia-cuda-mps-server", "dev/nvidia0")
    found = find(tmp_path)
    assert found.read_only == (tmp_path / "lib/firmware/nvidia/570.1",)
    assert found.sockets == (tmp_path / "run/nvidia-persistenced/socket",)
    assert found.mps == tmp_path / "tmp/nvidia-mps"
    assert found.control_nodes == ("nvidiactl", "nvidia-uvm")
    assert found.inside(found.sockets[0]) == "/run/nvidia-persistenced/socket"


def test_the_soname_is_read_from_the_library_itself() -> None:
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so.6" in line)
    assert soname(Path(path)) == "libc.so.6"


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(58), b"\x7fELF\x02\x01" + b"\xff" * 500]
)
def test_what_is_no_library_has_no_soname(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert soname(tmp_path / "file") is None
    assert soname(tmp_path / "missing") is None


def test_mig_capabilities_come_from_the_driver_s_table(tmp_path: Path) -> None:
    lay(tmp_path, "proc/driver/nvidia-caps/mig-minors")
    table = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu1/gi1/access 147\n"
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text(table)
    assert mig_caps(tmp_path, 0, 1, 0) == (12, 13)
    assert mig_caps(tmp_path, 1, 1, 0) == (147,)
    assert mig_caps(tmp_path / "elsewhere", 0, 1, 0) == ()


class Kernel:
    """Majors of a boot, and a nvidia-modprobe that may be missing."""

    def __init__(self, folder: Path, devices: str) -> None:
        self.dev, self.proc = folder / "dev", folder / "proc"
        self.dev.mkdir()
        self.proc.mkdir()
        (self.proc / "devices").write_text(devices)
        self.ran: list[list[str]] = []
        self.made: dict[str, tuple[int, int]] = {}

    def ensure(self, *wanted: str, modprobe: tuple[str, ...] = ()) -> tuple[str, ...]:
        def run(arguments: Sequence[str]) -> None:
            self.ran.append(list(arguments))
            for name in modprobe:
                (self.dev / name).touch()

        def make(path: Path, number: int) -> None:
            path.parent.mkdir(exist_ok=True)
            path.touch()
            self.made[str(path.relative_to(self.dev))] = (os.major(number), os.minor(number))

        return ensure_nodes(wanted, dev=self.dev, proc=self.proc, run=run, make=make)


LOADED = "Character devices:\n  1 mem\n195 nvidia\n507 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  8 nvidia\n"
ALL = (
    "nvidia0",
    "nvidia12",
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvidia-caps/nvidia-cap12",
)


def test_missing_nodes_are_made_with_this_boot_s_numbers(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, LOADED)
    (kernel.dev / "nvidia0").touch()
    assert kernel.ensure(*ALL) == ()
    assert kernel.ran == [["-u", "-c", "12", "-m"]]
    assert kernel.made == {
        "nvidia12": (195, 12),
        "nvidiactl": (195, 255),
        "nvidia-uvm": (510, 0),
        "nvidia-uvm-tools": (510, 1),
        "nvidia-modeset": (195, 254),
        "nvidia-caps/nvidia-cap12": (507, 12),
    }
    kernel.ran.clear()
    assert kernel.ensure(*ALL) == ()
    assert kernel.ran == []


def test_what_nvidia_modprobe_made_is_left_as_it_is(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, LOADED.replace("nvidia\n", "nvidia-frontend\n"))
    assert kernel.ensure("nvidia0", "nvidiactl", modprobe=("nvidiactl",)) == ()
    assert kernel.made == {"nvidia0": (195, 0)}


def test_without_the_kernel_module_nodes_stay_missing(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n")
    assert kernel.ensure(*ALL) == ALL


def test_nodes_are_linked_by_their_numbers(tmp_path: Path) -> None:
    char = tmp_path / "char"
    nodes = [Path("/dev/null"), Path("/dev/zero"), Path("/dev/not-there"), tmp_path]
    assert link_nodes(nodes, char=char) == 2
    assert (char / "1:3").stat().st_rdev == Path("/dev/null").stat().st_rdev
    assert link_nodes(nodes, char=char) == 0
