"""What the built libraries look like from outside."""

import re
import subprocess
from pathlib import Path

import pytest
from native import cudart

SOURCES = Path(__file__).resolve().parents[2] / "simulation/simdriver"


def _readelf(*args: str | Path) -> str:
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


def _exported(library: Path) -> list[str]:
    """What is not simulated is exported as a weak symbol; loaders make no difference."""
    rows = [line.split() for line in _readelf("--dyn-syms", library).splitlines()]
    return sorted(row[7] for row in rows if len(row) == 8 and row[4] in {"GLOBAL", "WEAK"} and row[6] != "UND")


def test_nvml_exports_exactly_the_export_map(simdriver_build: Path) -> None:
    listed = re.findall(r"^\t\t(\w+);$", (SOURCES / "libnvidia-ml.map").read_text(), re.MULTILINE)
    assert _exported(simdriver_build / "libnvidia-ml.so.1") == listed == sorted(set(listed))


def test_cuda_exports_exactly_the_functions_of_the_list(simdriver_build: Path) -> None:
    listed = sorted(function.symbol for function in cudart.functions())
    assert _exported(simdriver_build / "libcuda.so.1") == listed


@pytest.mark.parametrize("name", ["libnvidia-ml", "libcuda"])
def test_soname_is_the_real_one_and_only_libc_is_needed(simdriver_build: Path, name: str) -> None:
    dynamic = _readelf("-d", simdriver_build / f"{name}.so.1")
    assert f"soname: [{name}.so.1]" in dynamic
    assert set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic)) <= {"libc.so.6", "ld-linux-x86-64.so.2"}
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_nvidia_smi_links_no_nvml(simdriver_build: Path) -> None:
    assert "nvidia-ml" not in _readelf("-d", simdriver_build / "nvidia-smi")


def test_files_stay_small() -> None:
    sizes = {path.name: len(path.read_text().splitlines()) for path in SOURCES.glob("*.[ch]")}
    assert {name: size for name, size in sizes.items() if size > 300} == {}


def test_the_built_files_take_little_room(simdriver_build: Path) -> None:
    """Each test's box has a copy: with a state of theirs in each file they took 23 MB, and hundreds of boxes 7 GB."""
    sizes = {path.name: path.stat().st_size for path in simdriver_build.iterdir() if not path.is_symlink()}
    assert {name: size for name, size in sizes.items() if size > 1 << 20} == {}


def test_no_file_calls_one_that_calls_it(tmp_path: Path) -> None:
    """By the objects' symbols: take away files that call none of those left; a circle is what cannot be taken away."""
    sources = sorted(SOURCES.glob("*.c"))
    subprocess.run(["cc", "-std=gnu11", "-fPIC", "-O0", "-c", *sources], check=True, cwd=tmp_path)
    defined: dict[str, set[str]] = {}
    wanted: dict[str, set[str]] = {}
    for source in sources:
        listed = subprocess.run(
            ["nm", "-g", tmp_path / f"{source.stem}.o"], check=True, capture_output=True, text=True
        ).stdout
        rows = [line.split()[-2:] for line in listed.splitlines()]
        defined[source.name] = {name for kind, name in rows if kind != "U"}
        wanted[source.name] = {name for kind, name in rows if kind == "U"}
    left = set(defined)
    while free := {one for one in left if not any(wanted[one] & defined[other] for other in left - {one})}:
        left -= free
    assert left == set()
