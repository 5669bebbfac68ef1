"""NVIDIA's CUDA runtimes 11, 12 and 13 on each driver: they are told the same with the limiter and without it."""

import re
import sys
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.limited import Sides, make_sides
from driver.report import Figures
from native import cudart

pytestmark = [
    pytest.mark.driver,
    pytest.mark.skipif(not cudart.HAVE_CUDART, reason="NVIDIA's runtime wheels are for Linux on x86_64"),
]

NO_DEVICE, INSUFFICIENT_DRIVER = 100, 35
LOOKUP = {"11": 470, "12": 525, "13": 525}
"""The first branch that has the form of cuGetProcAddress by which a runtime asks."""
LEAST_REQUESTS = 300
_CALLS = """
import ctypes, sys
runtime, number, size = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), ctypes.c_size_t()
runtime.cudaGetErrorName.restype = ctypes.c_char_p
def say(name, *args):
    print(name, runtime.cudaGetErrorName(getattr(runtime, name)(*args)).decode(), number.value)
say("cudaRuntimeGetVersion", ctypes.byref(number))
say("cudaDriverGetVersion", ctypes.byref(number))
say("cudaGetDeviceCount", ctypes.byref(number))
say("cudaMemGetInfo", ctypes.byref(size), ctypes.byref(size))
say("cudaMalloc", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20))
say("cudaFree", None)
say("cudaDeviceSynchronize")
say("cudaGetLastError")
"""


@pytest.fixture
def sides(driver: Unpacked, limiter_build: Path, tmp_path: Path) -> Sides:
    return make_sides(driver, limiter_build, tmp_path)


@pytest.mark.parametrize("major", cudart.SHARED)
def test_the_runtimes_calls_answer_alike(sides: Sides, figures: Figures, major: str) -> None:
    bare, limited = sides.both([sys.executable, "-c", _CALLS, cudart.SHARED[major]])
    figures.note("runtimes", **{f"calls {major}": "yes" if bare == limited else "no"})
    assert (bare.status, bare.err) == (0, "")
    version = re.search(r"cudaDriverGetVersion cudaSuccess (\d+)", bare.out)
    assert version is not None
    assert int(version[1]) > 0
    assert "cudaMalloc cudaErrorNoDevice" in bare.out or "cudaMalloc cudaErrorInsufficientDriver" in bare.out
    assert limited == bare


@pytest.mark.parametrize("major", cudart.SHARED)
def test_the_runtime_asks_the_driver_alike_and_gets_the_same_forms(
    driver: Unpacked, sides: Sides, tmp_path: Path, figures: Figures, major: str
) -> None:
    if int(driver.branch.name) < LOOKUP[major]:
        return  # what notes the requests would itself be what the driver lacks
    bare, limited = (_requests(sides, libraries, tmp_path, major) for libraries in (sides.bare, sides.limited))
    figures.note("runtimes", **{f"requests {major}": len(bare[1])})
    assert bare[0] in {NO_DEVICE, INSUFFICIENT_DRIVER}
    assert len(bare[1]) > LEAST_REQUESTS
    assert limited == bare


def _requests(sides: Sides, libraries: Path, folder: Path, major: str) -> tuple[int, list[cudart.Request]]:
    place = folder / f"requests of {libraries.name}"
    place.mkdir()
    path = Path(f"{libraries}:{sides.needs}")
    return cudart.requests_of(cudart.shared_program(cudart.SHARED[major]), path, place)
