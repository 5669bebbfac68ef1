"""What of a driver is found below its root, and the device nodes that are made after a boot."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kits.elf import library

from edgegpu_base.errors import EdgegpuError
from edgegpu_core.choices.modes import Capability
from edgegpu_core.injection import Injection
from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.device_nodes import ensure_nodes, link_nodes
from edgegpu_plugin.cards.driver_root import mig_caps
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.config.schema import Driver
from edgegpu_plugin.containers.cdi import build_spec
from edgegpu_plugin.containers.driver_files import find, soname
from edgegpu_plugin.containers.injector import Injector
from edgegpu_plugin.containers.limiter_files import LimiterFiles
from edgegpu_plugin.errors import PluginError

CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0)
DEBIAN, RED_HAT = "usr/lib/x86_64-linux-gnu", "usr/lib64"
NEEDED = (f"{DEBIAN}/libcuda.so.570.1", f"{DEBIAN}/libnvidia-ml.so.570.1")


def lay(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def listen(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):  # its path may be too long
        listener.bind(path.name)


def names(root: Path, version: str = "") -> list[str]:
    return sorted(library.path.name for library in find(root, version=version).libraries)


def opened(root: Path) -> dict[str, list[str]]:
    return {
        one.value: [library.path.name for library in files.libraries]
        + [str(path.relative_to(root)) for path in files.read_only]
        for one, files in find(root).opened.items()
    }


@pytest.mark.parametrize("folder", [DEBIAN, RED_HAT, "usr/lib/x86_64-linux-gnu/nvidia/current"])
def test_libraries_of_the_driver_s_version_are_found(tmp_path: Path, folder: str) -> None:
    needed = (f"{folder}/lib{name}.so.570.1.2" for name in ("cuda", "nvidia-ml", "nvidia-nvvm"))
    lay(tmp_path, *needed)
    lay(tmp_path, f"{folder}/libcuda.so.535.9", f"{folder}/libnvidia-nvvm.so.535.9", f"{folder}/libother.so.570.1.2")
    (tmp_path / folder / "libcuda.so.1").symlink_to("libcuda.so.570.1.2")
    assert names(tmp_path) == ["libcuda.so.570.1.2", "libnvidia-ml.so.570.1.2", "libnvidia-nvvm.so.570.1.2"]
    assert find(tmp_path).version == "570.1.2"


def test_the_folder_of_a_branch_is_found_by_debian_s_links(tmp_path: Path) -> None:
    """As Debian's alternatives lay 418 beside another branch; `make driver` installs the packages themselves."""
    own, other = f"{DEBIAN}/nvidia/tesla-418", f"{DEBIAN}/nvidia/legacy-390xx"
    stems = ("cuda", "nvidia-ml", "nvidia-ptxjitcompiler")
    lay(tmp_path, *(f"{own}/lib{stem}.so.418.226.00" for stem in stems), f"{other}/libcuda.so.390.157")
    lay(tmp_path, f"{DEBIAN}/libnvidia-fatbinaryloader.so.418.226.00", "usr/sbin/nvidia-cuda-mps-server")
    (tmp_path / "etc").mkdir()
    for stem in ("cuda", "nvidia-ml"):
        (tmp_path / own / f"lib{stem}.so.1").symlink_to(f"lib{stem}.so.418.226.00")
        (tmp_path / "etc" / stem).symlink_to(f"../{own}/lib{stem}.so.1")
        (tmp_path / DEBIAN / f"lib{stem}.so.1").symlink_to(tmp_path / "etc" / stem)
    wanted = sorted(f"lib{stem}.so.418.226.00" for stem in (*stems, "nvidia-fatbinaryloader"))
    assert names(tmp_path) == names(tmp_path, "418.226.00") == wanted
    assert [path.name for path in find(tmp_path).tools] == ["nvidia-cuda-mps-server"]


def test_a_main_library_s_link_that_leads_in_a_circle_is_no_link(tmp_path: Path) -> None:
    lay(tmp_path, f"{DEBIAN}/libcuda.so.570.1", f"{DEBIAN}/libnvidia-ml.so.570.1")
    (tmp_path / DEBIAN / "libcuda.so.1").symlink_to("libcuda.so.1")
    assert names(tmp_path) == ["libcuda.so.570.1", "libnvidia-ml.so.570.1"]


def test_a_library_with_a_number_of_its_own_comes_along(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{DEBIAN}/lib{name}" for name in ("cuda.so.470.9", "nvidia-ml.so.470.9", "nvidia-nvvm.so.4.0.0")))
    assert "libnvidia-nvvm.so.4.0.0" in names(tmp_path)


def test_what_is_opened_alone_is_told_apart(tmp_path: Path) -> None:
    lay(tmp_path, *NEEDED)
    assert opened(tmp_path) == {}
    lay(tmp_path, *(f"{DEBIAN}/lib{stem}.so.570.1" for stem in ("GLX_nvidia", "nvidia-encode", "nvcuvid", "nvoptix")))
    lay(tmp_path, f"{DEBIAN}/libnvidia-encode.so.535.9", "etc/vulkan/icd.d/nvidia_icd.json")
    lay(tmp_path, "usr/share/nvidia/nvoptix.bin", "usr/share/glvnd/egl_vendor.d/10_nvidia.json")
    assert opened(tmp_path) == {
        "graphics": [
            "libGLX_nvidia.so.570.1",
            "libnvoptix.so.570.1",
            "etc/vulkan/icd.d/nvidia_icd.json",
            "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "usr/share/nvidia/nvoptix.bin",
        ],
        "video": ["libnvcuvid.so.570.1", "libnvidia-encode.so.570.1"],
    }
    assert names(tmp_path) == ["libcuda.so.570.1", "libnvidia-ml.so.570.1"]


@pytest.mark.parametrize("folder", ["usr/lib", "usr/lib64"])
def test_a_library_of_32_bits_is_passed_over(tmp_path: Path, folder: str) -> None:
    """Red Hat has them in /usr/lib, beside /usr/lib64; Arch has the others there."""
    lay(tmp_path, *NEEDED, f"{folder}/libnvidia-nvvm.so.570.1")
    (tmp_path / folder / "libnvidia-nvvm.so.570.1").write_bytes(b"\x7fELF\x01\x01\x01")
    assert names(tmp_path) == ["libcuda.so.570.1", "libnvidia-ml.so.570.1"]
    (tmp_path / folder / "libnvidia-nvvm.so.570.1").write_bytes(b"\x7fELF\x02\x01\x01")
    assert "libnvidia-nvvm.so.570.1" in names(tmp_path)


def test_absolute_links_lead_on_in_the_driver_s_own_root(tmp_path: Path) -> None:
    """So a driver container has Debian's alternatives; this machine may have something else at their targets."""
    branch, alternatives = f"{DEBIAN}/nvidia/tesla-470", tmp_path / "etc/alternatives"
    lay(tmp_path, *(f"{branch}/lib{stem}.so.470.9" for stem in ("cuda", "nvidia-ml", "nvidia-ptxjitcompiler")))
    lay(tmp_path, "usr/lib/nvidia/tesla-470/nvidia-smi")
    alternatives.mkdir(parents=True)
    for stem in ("cuda", "nvidia-ml"):
        (tmp_path / branch / f"lib{stem}.so.1").symlink_to(f"lib{stem}.so.470.9")
        (alternatives / f"nvidia--lib{stem}.so.1").symlink_to(f"/{branch}/lib{stem}.so.1")
        (tmp_path / DEBIAN / f"lib{stem}.so.1").symlink_to(f"/etc/alternatives/nvidia--lib{stem}.so.1")
    (alternatives / "nvidia-smi").symlink_to("/usr/lib/nvidia/tesla-470/nvidia-smi")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/etc/alternatives/nvidia-smi")
    found = find(tmp_path)
    assert (found.version, found.left_out) == ("470.9", ())
    assert {library.path.parent for library in found.libraries} == {tmp_path / branch}
    assert len(found.libraries) == 3
    assert found.tools == (tmp_path / "usr/lib/nvidia/tesla-470/nvidia-smi",)


def test_what_libcuda_asks_for_by_its_own_file_comes_along_or_is_missing(tmp_path: Path) -> None:
    lay(tmp_path, *NEEDED, f"{DEBIAN}/libnvidia-tomorrow.so.570.1", f"{DEBIAN}/libnvidia-later.so.9")
    asked = (
        "libnvidia-tomorrow.so.1",
        "libnvidia-later.so.9",
        "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-pkcs11.so.1",
    )
    words = b"\0".join(name.encode() for name in (*asked, "see libnvidia-no.so.1 there"))
    (tmp_path / NEEDED[0]).write_bytes(library(["libcuda.so.1"]) + b"\0" + words + b"\0")
    found = find(tmp_path)
    assert found.missing == ("libnvidia-ptxjitcompiler.so.1",)
    assert sorted({"libnvidia-later.so.9", "libnvidia-tomorrow.so.570.1"} & set(names(tmp_path))) == [
        "libnvidia-later.so.9",
        "libnvidia-tomorrow.so.570.1",
    ]
    lay(tmp_path, f"{DEBIAN}/libnvidia-ptxjitcompiler.so.570.1")
    assert find(tmp_path).missing == ()


def test_opencl_s_loader_finds_the_driver_where_nothing_holds_a_container(tmp_path: Path) -> None:
    icd, vulkan = "etc/OpenCL/vendors/nvidia.icd", "usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"
    lay(tmp_path, *NEEDED, f"{DEBIAN}/libnvidia-compiler.so.570.1", f"{DEBIAN}/libGLX_nvidia.so.570.1", icd, vulkan)
    files, limiter = find(tmp_path), LimiterFiles({})
    held, free = (json.dumps(build_spec([CARD], files, limiter=one)["containerEdits"]) for one in (limiter, None))
    assert ('"/etc/OpenCL/vendors/nvidia.icd"' in free, "nvidia.icd" in held) == (True, False)
    assert ("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json" in free, "libnvidia-compiler.so.570.1" in held) == (
        True,
        True,
    )


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
    assert (empty.read_only, empty.sockets, empty.shared, empty.control_nodes) == ((), (), (), ())
    lay(tmp_path, "lib/firmware/nvidia/570.1/gsp_ga10x.bin", "dev/nvidiactl", "var/lib/nvidia-sim/state")
    lay(tmp_path, "dev/nvidia-uvm", "usr/bin/nvidia-cuda-mps-server", "dev/nvidia0")
    listen(tmp_path / "run/nvidia-persistenced/socket")
    found = find(tmp_path)
    assert found.read_only == (tmp_path / "lib/firmware/nvidia/570.1",)
    assert found.sockets == (tmp_path / "run/nvidia-persistenced/socket",)
    assert found.shared == (tmp_path / "var/lib/nvidia-sim",)
    assert found.left_out == ()
    assert found.control_nodes == ("nvidiactl", "nvidia-uvm")
    assert found.inside(found.sockets[0]) == "/run/nvidia-persistenced/socket"


def folder(path: Path) -> None:
    path.mkdir()
    (path / "control").touch()


@pytest.mark.parametrize(
    "make",
    [
        folder,
        os.mkfifo,
        lambda path: path.symlink_to("/etc"),
        lambda path: path.symlink_to("missing"),
        lambda path: path.symlink_to("x" * 300),
        lambda path: path.symlink_to(path),
    ],
    ids=["folder", "fifo", "link to /etc", "dangling link", "link that is too long", "link to itself"],
)
def test_nothing_in_tmp_comes_into_a_container(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The place of MPS's pipes is everybody's: whoever is first there chooses what it is."""
    lay(tmp_path, f"{DEBIAN}/libcuda.so.570.1", f"{DEBIAN}/libnvidia-ml.so.570.1")
    (tmp_path / "tmp").mkdir()
    make(tmp_path / "tmp/nvidia-mps")
    assert "nvidia-mps" not in json.dumps(build_spec([CARD], find(tmp_path)))


@pytest.mark.parametrize("mode", [0o757, 0o1777, 0o775])
def test_what_others_could_replace_is_left_out(tmp_path: Path, mode: int) -> None:
    lay(tmp_path, *NEEDED, "usr/local/bin/nvidia-smi", "home/somebody/tool", "opt/bin/nvidia-smi")
    (tmp_path / "usr/local/bin").chmod(mode)
    (tmp_path / "home/somebody").chmod(mode)
    (tmp_path / "opt/bin/nvidia-debugdump").symlink_to("../../home/somebody/tool")
    listen(tmp_path / "run/nvidia-persistenced/socket")
    (tmp_path / "run/nvidia-persistenced").chmod(mode)
    found = find(tmp_path)
    assert (found.tools, found.sockets) == ((tmp_path / "opt/bin/nvidia-smi",), ())
    assert [text.partition(" is left out: ")[0] for text in found.left_out] == [
        str(tmp_path / name)
        for name in ("usr/local/bin/nvidia-smi", "opt/bin/nvidia-debugdump", "run/nvidia-persistenced/socket")
    ]
    assert f"{tmp_path}/home/somebody can be written by others than root (mode {mode:o})" in found.left_out[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to somebody else")
@pytest.mark.parametrize("name", ["usr/bin", "usr/bin/nvidia-smi", "run/nvidia-persistenced"])
def test_what_belongs_to_somebody_else_is_left_out(tmp_path: Path, name: str) -> None:
    lay(tmp_path, *NEEDED, "usr/bin/nvidia-smi")
    listen(tmp_path / "run/nvidia-persistenced/socket")
    os.chown(tmp_path / name, 65534, -1)
    found = find(tmp_path)
    assert len(found.tools) + len(found.sockets) == 1
    assert found.left_out[0].endswith(f"{tmp_path / name} belongs to uid 65534")


def test_a_driver_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, *NEEDED)
    (tmp_path / DEBIAN).chmod(0o777)
    with pytest.raises(
        EdgegpuError, match=rf"cannot find .*; {tmp_path}/{NEEDED[0]} is left out: {tmp_path}/{DEBIAN} "
    ):
        find(tmp_path)


def test_what_is_of_another_kind_is_left_out(tmp_path: Path) -> None:
    lay(tmp_path, *NEEDED, "run/nvidia-persistenced/socket", "usr/share/nvidia/nvoptix.bin/file", "var/lib/nvidia-sim")
    lay(tmp_path, f"{DEBIAN}/libnvoptix.so.570.1")
    (tmp_path / "usr/bin").mkdir()
    os.mkfifo(tmp_path / "usr/bin/nvidia-smi")
    found = find(tmp_path)
    assert (found.tools, found.read_only, found.sockets, found.shared) == ((), (), (), ())
    assert found.opened[Capability.GRAPHICS].read_only == ()
    assert len(found.left_out) == 4


def test_one_file_that_cannot_be_looked_at_ends_nothing(tmp_path: Path) -> None:
    lay(tmp_path, *NEEDED)
    (tmp_path / "usr/bin").mkdir()
    for name in ("usr/bin/nvidia-smi", f"{DEBIAN}/libnvcuvid.so.570.1", "run", "lib", "dev", f"{DEBIAN}/libcuda.so.1"):
        (tmp_path / name).symlink_to("x" * 300)
    settings = Driver(root=tmp_path, cdi_folder=tmp_path / "cdi", injection=Injection.CDI)
    injector = Injector(settings, Nvml(settings), run=tmp_path / "run-edgegpu")
    injector.use([CARD])
    assert "libcuda.so.570.1" in (tmp_path / "cdi/edgegpu.json").read_text()
    (tmp_path / NEEDED[0]).unlink()
    injector.use([CARD])  # the driver's main library is not there: said, and asked again when a container starts


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
