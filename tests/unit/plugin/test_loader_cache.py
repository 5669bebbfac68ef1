"""The hook that puts the driver into loader caches: which program the runtime gets, and for which libraries."""

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.plugin.test_cdi import CARD

from edgegpu_core.choices.modes import Capability
from edgegpu_plugin.containers.cdi import build_capabilities, build_spec
from edgegpu_plugin.containers.driver_files import CapabilityFiles, DriverFiles, Library
from edgegpu_plugin.containers.image.loader_cache import PROGRAM, find_program
from edgegpu_plugin.containers.limiter_files import LimiterFiles
from edgegpu_plugin.errors import PluginError

CUDA = Library(Path("/usr/lib64/libcuda.so.570.1"), ("libcuda.so.570.1", "libcuda.so.1", "libcuda.so"))
NVVM = Library(Path("/usr/lib64/libnvidia-nvvm.so.570.1"), ("libnvidia-nvvm.so.570.1",))
DRAWS = Library(Path("/usr/lib64/libGLX_nvidia.so.570.1"), ("libGLX_nvidia.so.570.1", "libGLX_nvidia.so.0"))
FILES = DriverFiles(
    root=Path("/"),
    version="570.1",
    libraries=(CUDA, NVVM),
    opened={Capability.GRAPHICS: CapabilityFiles((DRAWS,))},
)
HOOK = Path("/opt/edgegpu/1/limiter") / PROGRAM
LIMITER = LimiterFiles({"libcuda.so.1": Path("/opt/edgegpu/1/limiter/libcuda.so.1")})
FOLDERS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
BASE = ["libcuda.so.1", "libcuda.so", "libnvidia-nvvm.so.570.1"]


def program(folder: Path, *, machine: int = 62, kind: int = 1, mode: int = 0o755) -> Path:
    """Write a program with one segment of a kind; 3 names an interpreter."""
    fields = (2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *fields)
    segment = struct.pack("<IIQQQQQQ", kind, 4, 120, 0, 0, 8, 8, 1)
    path = folder / PROGRAM
    path.write_bytes(head + segment + b"/lib/ld\0")
    path.chmod(mode)
    return path


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user may enter; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        yield place


def hook(*names: str) -> dict[str, object]:
    return {"hookName": "createContainer", "path": str(HOOK), "args": [PROGRAM, *FOLDERS, "--", *names]}


def test_a_container_gets_a_hook_for_what_is_mounted_into_it() -> None:
    free = build_spec([CARD], FILES, hook=HOOK, machine="x86_64")
    assert free["containerEdits"]["hooks"] == [hook(*BASE, "libGLX_nvidia.so.0")]
    held = build_spec([CARD], FILES, hook=HOOK, limiter=LIMITER, machine="x86_64")
    assert held["containerEdits"]["hooks"] == [hook(*BASE)]
    opened = build_capabilities(FILES, hook=HOOK, machine="x86_64")
    assert opened is not None
    assert [device["containerEdits"]["hooks"] for device in opened["devices"]] == [[hook("libGLX_nvidia.so.0")]]
    assert held["cdiVersion"] == opened["cdiVersion"] == "0.5.0"


def test_without_the_program_there_is_no_hook() -> None:
    assert "hooks" not in build_spec([CARD], FILES, machine="x86_64")["containerEdits"]
    opened = build_capabilities(FILES, machine="x86_64")
    assert opened is not None
    assert "hooks" not in opened["devices"][0]["containerEdits"]


def test_the_built_program_can_be_a_hook(limiter_build: Path) -> None:
    built = limiter_build / PROGRAM
    assert find_program(limiter_build, machine="x86_64") == built
    dynamic = subprocess.run(["readelf", "-dl", built], capture_output=True, text=True, check=True).stdout
    assert "There is no dynamic section" in dynamic
    assert "INTERP" not in dynamic


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"machine": 183}, "no program for this machine's processor"),
        ({"kind": 3}, "it is not static"),
        ({"mode": 0o700}, "closed to them"),
        ({"mode": 0o777}, "can be written by others"),
    ],
)
def test_a_program_that_the_runtime_could_not_run_is_no_hook(folder: Path, made: dict[str, int], words: str) -> None:
    assert find_program(program(folder).parent, machine="x86_64").name == PROGRAM
    program(folder, **made)
    with pytest.raises(PluginError, match=words):
        find_program(folder, machine="x86_64")


def test_a_program_that_is_not_there_is_no_hook(folder: Path) -> None:
    with pytest.raises(PluginError, match="No such file"):
        find_program(folder)


def test_a_folder_that_a_user_namespace_could_not_enter_makes_no_hook(folder: Path) -> None:
    inner = folder / "closed"
    inner.mkdir(mode=0o700)
    program(inner)
    with pytest.raises(PluginError, match=f"{inner} is closed to them"):
        find_program(inner, machine="x86_64")


def test_a_program_on_a_file_system_without_programs_is_no_hook(folder: Path) -> None:
    program(folder)
    code = "import sys, pathlib; from edgegpu_plugin.containers.image.loader_cache import find_program as f; "
    code += "f(pathlib.Path(sys.argv[1]), machine='x86_64')"
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,noexec "$1" && exec "$2" -c "$3" "$1"'
    user = () if os.geteuid() == 0 else ("-Ur",)
    command = ["unshare", *user, "-m", "sh", "-c", script, "sh", folder, sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "its file system is mounted with noexec" in done.stderr
