"""What must never be committed or bundled: programs and packages of others, NVIDIA's driver first among them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from edgegpu_plugin.containers.driver_files import soname

ROOT = Path(__file__).resolve().parents[2]
COMPILED = {b"\x7fELF": "a compiled program or library", b"!<ar": "a package or a static library"}
DRIVER = re.compile(
    r"lib\w*(cuda|nvidia|nvcuvid|nvoptix)\w*([-.].*)?\.so(\..*)?|(lib)?nvidia-[\w.-]+|NVIDIA-Linux.*|.*\.deb"
)
"""Names of files of NVIDIA's driver and its packages."""
OURS = {"limiter/libcuda.so.1", "limiter/libnvidia-ml.so.1"}
"""The limiter's libraries, which stand in front of the driver's under their names."""
OWNER = b"NVIDIA Corporation"


def test_no_compiled_file_is_in_the_repository() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert len(paths) > 1000
    files = [path for path in paths if path.is_file()]
    compiled = {path.relative_to(ROOT): COMPILED[head] for path in files if (head := _head(path)) in COMPILED}
    assert compiled == {}


def test_nothing_of_the_driver_is_in_the_bundle() -> None:
    """What tools/bundle packs is the environment, whole and alone (test_bundle.py)."""
    subprocess.run([ROOT / "tools/env"], check=True, cwd=ROOT)
    environment = ROOT / "build/env/edgegpu"
    files = {str(path.relative_to(environment)): path for path in environment.rglob("*") if path.is_file()}
    assert files.keys() >= OURS
    assert len(files) > 1000
    assert {name: why for name, path in files.items() if (why := _of_driver(name, path))} == {}


def _of_driver(name: str, path: Path) -> str:
    """Return why a file is NVIDIA's; empty where it is not."""
    head = _head(path)
    if name in OURS:
        return "" if b"edgegpu-limiter-folder:" in path.read_bytes() else "it is not the limiter's"
    if DRIVER.fullmatch(PurePosixPath(name).name) or DRIVER.fullmatch(soname(path) or ""):
        return "it has a name of the driver's"
    if head in COMPILED and OWNER in path.read_bytes():
        return f"it is {COMPILED[head]} of {OWNER.decode()}"
    return ""


@pytest.mark.parametrize(
    "name",
    ["libcuda.so.535.309.01", "libnvidia-ml.so.1", "nvidia-smi", "libGLX_nvidia.so.0", "libcuda1_535-1_amd64.deb"],
)
def test_names_of_the_driver_are_known(name: str) -> None:
    assert DRIVER.fullmatch(name)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)
