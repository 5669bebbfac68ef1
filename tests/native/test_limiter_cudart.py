"""NVIDIA's own CUDA runtime on the limiter: what it asks for leads to the hooks, and else to the driver."""

import json
import sys
from pathlib import Path

import pytest
from limiter_functions import read_table
from native import cudart
from native.limiterkit import SOURCES, Container, make_container
from native.shareskit import POINTS
from native.simkit import DRIVER_FILE, Child

from edgegpu_plugin.containers.usage_file import read_usage
from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

pytestmark = pytest.mark.skipif(not cudart.HAVE_CUDART, reason="NVIDIA's runtime wheels are for Linux on x86_64")

LEGACY, PER_THREAD = 1, 2
INVALID, OUT_OF_MEMORY, NOT_FOUND = 1, 2, 500
REPLAY = Path(__file__).with_name("replaychild.py")
REQUESTS = 384
"""What the oldest of the three asks for; newer ones ask for more."""
RUNTIME_TABLE = "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9"
"""The runtime's own interface (simulation/simdriver/cuda_export.c)."""
HOOKS_ASKED = 15
_RUNTIME = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
cuda.cuDeviceTotalMem_v2(ctypes.byref(ctypes.c_size_t()), 0)
"""
_UNHOOKED_FORM = """
import ctypes
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print(cuda.cuGetProcAddress(b"cuMemcpyDtoH", ctypes.byref(found), 2000, ctypes.c_uint64(0)), found.value is not None)
"""
_MANY_TABLES = """
import ctypes
cuda, table, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_size_t()
ids = [bytes([1]) * 16, bytes([1]) * 8 + bytes([2]) * 8, *(bytes([one]) * 16 for one in range(40))]
found = {cuda.cuGetExportTable(ctypes.byref(table), one) for one in ids[:4]}
cuda.cuInit(0)
cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
found |= {cuda.cuGetExportTable(ctypes.byref(table), one) for one in ids}
print(*found, cuda.cuGetExportTable(ctypes.byref(table), None), cuda.cuGetExportTable(None, ids[0]))
"""
HOOKS = {function.name for function in read_table(SOURCES / "cuda/functions.tsv") if function.rule == "hook"}


@pytest.fixture
def newest(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=SimVersions(cuda="13.5"))


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, newest: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, newest.libraries)
    made.limit((two_cards[0], 1024))
    (made.libraries / DRIVER_FILE).symlink_to("libcuda.so.1")  # what the recorder of requests needs
    return made


def _same(program: list[str | Path], newest: SimDriver, container: Container, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "limited").mkdir()
    bare = cudart.requests_of(program, newest.libraries, tmp_path / "bare")
    limited = cudart.requests_of(program, container.libraries, tmp_path / "limited")
    assert limited == bare
    asked = {request.symbol for request in limited[1]}
    assert {"cuMemAlloc_v2", "cuMemAllocAsync"} <= asked
    assert len(HOOKS & asked) >= HOOKS_ASKED


def test_a_form_that_the_list_passes_on_is_given_where_others_of_its_name_have_hooks(container: Container) -> None:
    """The copy of CUDA 2.0: a real driver gives it, and the hooks are for the forms that came with 3.2."""
    assert container.run(sys.executable, "-c", _UNHOOKED_FORM) == "0 True\n"


@pytest.mark.parametrize("major", ["11", "12", "13"])
def test_the_shared_runtime_gets_the_same_forms_as_from_the_driver(
    newest: SimDriver, container: Container, tmp_path: Path, major: str
) -> None:
    _same(cudart.shared_program(cudart.SHARED[major]), newest, container, tmp_path)


@pytest.mark.parametrize("major", ["12", "13"])
def test_the_static_runtime_gets_the_same_forms_as_from_the_driver(
    newest: SimDriver, container: Container, tmp_path: Path, major: str
) -> None:
    _same([cudart.static_program(tmp_path, cudart.STATIC[major])], newest, container, tmp_path)


@pytest.mark.parametrize("major", ["11", "12", "13"])
def test_a_client_that_has_what_the_runtime_was_given_is_held(
    newest: SimDriver, container: Container, two_cards: list[SimCard], tmp_path: Path, major: str
) -> None:
    _, requests = cudart.requests_of(cudart.shared_program(cudart.SHARED[major]), newest.libraries, tmp_path)
    replay = tmp_path / "replay"
    replay.write_text("".join(f"{one.name} {one.version} {one.flags}\n" for one in requests))
    container.limit((two_cards[0], 1024), core=20)
    said = json.loads(container.run(sys.executable, REPLAY, replay))
    assert len(requests) >= REQUESTS
    assert said["total_mib"] == 1024
    for way in ("cuMemAlloc", "cuMemAllocAsync", "cuMemAllocManaged"):
        assert said[way][1] == OUT_OF_MEMORY
        assert 512 <= said[way][0] <= 1024
    assert said["percent"] <= 20 + POINTS


def test_the_private_tables_that_the_runtime_asks_for_are_noted_once(container: Container) -> None:
    """The simulated driver is none to the runtime, which ends then; so the card is used without it."""
    seen = set()
    for _ in range(2):
        container.run(sys.executable, "-c", _RUNTIME, cudart.SHARED["13"])
        counts = read_usage(container.usage.read_bytes())
        assert counts is not None
        seen.add(counts.tables)
    ((first, *others),) = seen
    assert RUNTIME_TABLE in {first, *others}


def test_more_tables_than_there_is_room_for(container: Container) -> None:
    assert container.run(sys.executable, "-c", _MANY_TABLES) == f"{NOT_FOUND} {INVALID} {INVALID}\n"
    counts = read_usage(container.usage.read_bytes())
    assert counts is not None
    assert [table[:2] for table in counts.tables] == ["01", *(f"{one:02x}" for one in range(1, 32))]
    assert set(counts.bytes.values()) == {0}


def test_who_asks_for_tables_alone_uses_no_usage_file(container: Container) -> None:
    program = _MANY_TABLES.replace("cuda.cuInit(0)", "").replace("cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0)", "")
    container.run(sys.executable, "-c", program)
    assert not any(container.usage.read_bytes())


def test_each_form_of_each_function_is_the_limiters_or_the_drivers(container: Container) -> None:
    with Child(container.libraries) as process:
        process.open_cuda()
        ours, wrong = set[str](), []
        for function in cudart.functions():
            ask = (function.since, PER_THREAD if function.per_thread else LEGACY)
            symbol = process.call("cuGetProcAddress_v2", function.base, "&symbol", *ask, "&int")[1]
            address = process.call("cuGetProcAddress_v2", function.base, "&ptr", *ask, "&int")[1]
            if address is None:
                continue
            path = _mapped_at(process.pid, address)
            if path.startswith(str(container.libraries)):
                ours.add(symbol)
            if (symbol in HOOKS) != path.startswith(str(container.libraries)):
                wrong.append((function.symbol, symbol, path))
        assert wrong == []
        assert HOOKS - ours == set()


def _mapped_at(pid: int, address: int) -> str:
    for row in Path(f"/proc/{pid}/maps").read_text().splitlines():
        low, high = (int(part, 16) for part in row.split()[0].split("-"))
        if low <= address < high:
            return row.split()[-1]
    return ""
