"""NVIDIA's CUDA runtime from its wheels, and the functions of the driver that it asks for."""

import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from native.simkit import shadow

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ROOT / "simulation/simdriver/functions.txt"
RECORDER = Path(__file__).with_name("proc_address_recorder.c")
_SITE = Path(sysconfig.get_path("purelib")) / "nvidia"
SHARED = {
    "11": _SITE / "cuda_runtime/lib/libcudart.so.11.0",
    "12": _SITE / "cuda_runtime/lib/libcudart.so.12",
    "13": _SITE / "cu13/lib/libcudart.so.13",
}
STATIC = {
    "12": _SITE / "cuda_runtime/lib/libcudart_static.a",
    "13": _SITE / "cu13/lib/libcudart_static.a",
}
HEADERS = {"11": _SITE / "cuda_runtime/include/cuda.h", "13": _SITE / "cu13/include/cuda.h"}
"""The header of 12 lies where that of 11 does, and either comes last."""
HAVE_CUDART = platform.machine() == "x86_64" and sys.platform == "linux"

_SHARED_MAIN = """
import ctypes, sys
print(ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))
"""
_STATIC_MAIN = """
#include <stdio.h>
int cudaGetDeviceCount(int *count);
int main(void)
{
	int count;
	printf("%d\\n", cudaGetDeviceCount(&count));
	return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Function:
    """An exported function of the driver; `since` is a CUDA version as 12060."""

    symbol: str
    base: str
    since: int
    per_thread: bool


@dataclass(frozen=True, slots=True)
class Request:
    """One call of cuGetProcAddress and its answer; `symbol` is "-" where there was none."""

    name: str
    version: int
    flags: int
    result: int
    status: int
    symbol: str


def functions() -> list[Function]:
    """Return the driver's functions as the simulation lists them."""
    rows = [line.split() for line in FUNCTIONS.read_text().splitlines() if not line.startswith("#")]
    return [_function(symbol, since) for symbol, since in rows]


def _function(symbol: str, since: str) -> Function:
    major, minor = since.split(".")
    base = symbol.removesuffix("_ptsz").removesuffix("_ptds")
    per_thread = base != symbol
    if base[-3:-1] == "_v":
        base = base[:-3]
    return Function(symbol, base, int(major) * 1000 + int(minor) * 10, per_thread)


def static_program(folder: Path, runtime: Path) -> Path:
    """Return a program with the static runtime in it, which prints what cudaGetDeviceCount returns."""
    source, program = folder / "main.c", folder / "main"
    source.write_text(_STATIC_MAIN)
    subprocess.run(["cc", "-o", program, source, runtime, "-ldl", "-lpthread", "-lrt"], check=True)
    return program


def shared_program(runtime: Path) -> list[str | Path]:
    return [sys.executable, "-c", _SHARED_MAIN, runtime]


def requests_of(program: Sequence[str | Path], libraries: Path, folder: Path) -> tuple[int, list[Request]]:
    """Run a program on the driver, and return the status that it printed with all that it asked for."""
    asked = folder / "requests"
    path = f"{shadow(folder, [RECORDER]).parent}:{libraries}"
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "REQUESTS": str(asked)}
    done = subprocess.run(program, env=environment, check=True, capture_output=True, text=True, timeout=240)
    rows = [line.split() for line in asked.read_text().splitlines()]
    return int(done.stdout), [
        Request(name, int(version), int(flags), int(result), int(status), symbol)
        for name, version, flags, result, status, symbol in rows
    ]
