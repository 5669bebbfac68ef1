"""The list of functions, and what the built libraries look like from outside."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from limiter_functions import faults_of, listed_cuda, read_table
from native.cudart import HAVE_CUDART, HEADERS
from native.limiterkit import HANG_TIMEOUT_S, LIBRARIES, SOURCES

TABLES = {"libcuda.so.1": SOURCES / "cuda/functions.tsv", "libnvidia-ml.so.1": SOURCES / "nvml/functions.tsv"}
HOOKED = {"libcuda.so.1": 122, "libnvidia-ml.so.1": 20}
OPEN = {"libcuda.so.1": 2, "libnvidia-ml.so.1": 4}
"""How many functions can take memory that does not count yet, or show more than the container's share: README.md names
them. The numbers may only fall."""


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_built_library_stands_in_for_the_driver(limiter_build: Path, name: str) -> None:
    assert faults_of(limiter_build / name, TABLES[name], name, any_glibc=False) == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_name_of_the_simulated_driver_is_in_the_list(simdriver_build: Path, name: str) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", simdriver_build / name], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in symbols.stdout.splitlines()}
    assert exported - {function.name for function in read_table(TABLES[name])} == set()


def test_each_name_of_nvidias_own_binding_is_in_the_list() -> None:
    named = set(re.findall(r'"(nvml[A-Z]\w+)"', Path(pynvml.__file__).read_text()))
    assert named - {function.name for function in read_table(TABLES["libnvidia-ml.so.1"])} == set()


VIEWS = ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",), ("-D__CUDA_API_VERSION_INTERNAL",))
"""cuda.h declares what programs call: by the legacy stream, by each thread's own, and every version of a function."""


def declared(header: Path) -> set[str]:
    """Return the functions of the driver that a cuda.h declares, by the names that its macros give them.

    What it defines itself (`static inline`) calls another of them.
    """
    names = set[str]()
    for view in VIEWS:
        command: list[str | Path] = ["cc", "-E", "-P", *view, "-x", "c", header]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names.update(re.findall(r"(?<!inline )\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))
    return names


@pytest.mark.skipif(not HAVE_CUDART, reason="NVIDIA has wheels for amd64")
@pytest.mark.parametrize("version", HEADERS)
def test_each_function_of_nvidias_header_is_in_the_list(tmp_path: Path, version: str) -> None:
    listed = {function.name for function in read_table(TABLES["libcuda.so.1"])}
    found = declared(HEADERS[version])
    assert len(found) > 500
    assert {"cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cuMemcpyDtoH_v2_ptds"} <= found
    assert found - listed == set(), "give each a row: does it take memory, or launch?"
    newer = tmp_path / "cuda.h"
    addition = "\nCUresult CUDAAPI cuMemAllocElsewhere(CUdeviceptr *out, size_t bytes);\n"
    newer.write_text(HEADERS[version].read_text() + addition)
    assert declared(newer) - listed == {"cuMemAllocElsewhere"}


def test_the_list_says_of_which_cuda_its_newest_functions_are() -> None:
    rows = [line.split("\t") for line in TABLES["libcuda.so.1"].read_text().splitlines() if not line.startswith("#")]
    since = max(tuple(int(part) for part in row[3].split(".")) for row in rows[1:])
    listed = listed_cuda(TABLES["libcuda.so.1"]) or 0
    assert 1000 * since[0] + 10 * since[1] <= listed
    assert listed_cuda(TABLES["libnvidia-ml.so.1"]) is None
    if HAVE_CUDART:
        version = re.search(r"^#define CUDA_VERSION (\d+)$", HEADERS["13"].read_text(), re.MULTILINE)
        assert version is not None
        assert int(version[1]) == listed, "its first line names the newest header that was compared"


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_open_does_not_grow(name: str) -> None:
    rules = [function.rule for function in read_table(TABLES[name])]
    assert len(rules) >= {"libcuda.so.1": 722, "libnvidia-ml.so.1": 420}[name]
    assert rules.count("hook") >= HOOKED[name]
    assert rules.count("open") <= OPEN[name]


def test_each_function_that_launches_is_hooked() -> None:
    rows = [line.split("\t") for line in TABLES["libcuda.so.1"].read_text().splitlines()]
    launching = {row[0] for row in rows if row[1:2] == ["launch"] and not row[0].startswith("cuLaunchHostFunc")}
    assert len(launching) >= 12
    assert (
        launching - {function.name for function in read_table(TABLES["libcuda.so.1"]) if function.rule == "hook"}
        == set()
    )


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("cuZero\tother\tguess\t1.0\twhy", "needs a rule"),
        ("cuZero\tother\tpass\t1.0\t", "the reason"),
        ("cuAaa\tother\tpass\t1.0\twhy", "must not stand after"),
    ],
)
def test_a_line_that_makes_no_sense_stops_the_build(tmp_path: Path, line: str, fault: str) -> None:
    table = tmp_path / "functions.tsv"
    table.write_text(TABLES["libcuda.so.1"].read_text() + line + "\n")
    with pytest.raises(ValueError, match=fault):
        read_table(table)


def test_a_library_for_this_machine_alone_is_refused(limiter_build: Path, tmp_path: Path) -> None:
    source, table = tmp_path / "new.c", tmp_path / "functions.tsv"
    source.write_text("#include <stdlib.h>\n#include <unistd.h>\nint cuOne(void) { return close_range(3, 4, 0); }\n")
    table.write_text("function\trule\twhy\ncuOne\tpass\twhy\ncuTwo\tpass\twhy\n")
    library = tmp_path / "new.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", source, "-o", library], check=True)
    found = "\n".join(faults_of(library, table, "libcuda.so.1", any_glibc=False))
    assert "does not export cuTwo" in found
    assert "takes close_range from libc" in found
    assert "has not the SONAME" in found
    if "GLIBC_2.34" in subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout:
        assert "needs GLIBC_2.34" in found
    assert limiter_build.is_dir()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_function_that_is_named_a_hook_and_has_none_does_not_link(limiter_build: Path, tmp_path: Path) -> None:
    copy = tmp_path / "limiter"
    shutil.copytree(SOURCES, copy)
    table = copy / "cuda/functions.tsv"
    table.write_text(table.read_text().replace("cuParamSetf\tother\tpass", "cuParamSetf\tother\thook"))
    root = SOURCES.parents[1]
    command: list[str | Path] = [
        "make",
        "-C",
        copy,
        f"OUT={tmp_path}/out",
        f"ROOT={root}",
        f"PYTHON={sys.executable}",
        "CC=cc",
    ]
    made = subprocess.run(
        [*command, "EXTRA=-O0 -g0 -Wl,-z,defs", f"{tmp_path}/out/libcuda.so.1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    assert "cuParamSetf" in made.stderr
    assert limiter_build.is_dir()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_another_compiler_or_other_options_built_is_built_again(limiter_build: Path, tmp_path: Path) -> None:
    out, name = tmp_path / "out", "libnvidia-ml.so.1"
    library = out / name

    def make(*options: str) -> int:
        command: list[str | Path] = ["make", "-s", "-C", SOURCES, f"OUT={out}", f"PYTHON={sys.executable}"]
        return subprocess.run([*command, *options, library], check=False, timeout=HANG_TIMEOUT_S).returncode

    assert make("CC=cc", "EXTRA=-O0 -g0") == 0
    assert make("-q", "CC=cc", "EXTRA=-O0 -g0") == 0, "it is built anew though nothing changed"
    assert make("-q", "CC=cc", "EXTRA=-O0 -g1") == 1, "other options"
    assert make("EXTRA=-g0") == 0
    assert faults_of(library, TABLES[name], name, any_glibc=False) == []
    assert make("-q", "EXTRA=-g0") == 0
    assert limiter_build.is_dir()
