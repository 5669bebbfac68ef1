"""What NVML says of each process, through the limiter: of this container's processes alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, Container, compile_program, make_container
from native.simkit import Child

LIMIT_MIB, CONTEXT_MIB, EACH_MIB = 64, 4, 10
NOT_SUPPORTED, NOT_FOUND = 3, 6
VERSION_1 = 0x1000018
COMPUTE, GRAPHICS = 0, 1
CARD = ["dev", 0]

Named = Callable[[Child], list[int]]


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    """Return one on drivers that answer at once; NVML's names two processes of others beside whoever asks."""
    driver = tmp_path / "driver"
    driver.mkdir()
    for name, source in (("libcuda.so.1", "nulldriver"), ("libnvidia-ml.so.1", "nullnvml")):
        compile_program(driver / name, limiter_build, [f"tests/{source}.c"], "-O2", "-shared", "-fPIC")
    made = make_container(tmp_path / "container", limiter_build, driver)
    made.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def idle(container: Container) -> Iterator[Child]:
    """Return a process that has nothing on the card."""
    with Child(container.libraries) as child:
        child.call("nvmlInit")
        yield child


@pytest.fixture
def busy(idle: Child) -> Child:
    """Return the same, with memory of the card."""
    idle.open_cuda()
    idle.alloc(EACH_MIB)
    return idle


def _pids(call: str, *args: object) -> Named:
    return lambda child: [row["pid"] for row in child.call(call, CARD, *args)]


LISTS = {
    "utilization": _pids("nvmlDeviceGetProcessUtilization", 0),
    "utilization by version": _pids("nvmlDeviceGetProcessesUtilizationInfo", 0),
    "details": _pids("nvmlDeviceGetRunningProcessDetailList", VERSION_1, COMPUTE),
    "encoders": _pids("nvmlDeviceGetEncoderSessions"),
    "captures": _pids("nvmlDeviceGetFBCSessions"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_names_the_containers_own_processes_alone(busy: Child, name: str) -> None:
    assert LISTS[name](busy) == [busy.pid]


@pytest.mark.parametrize("name", ["details", "encoders", "captures"])
def test_who_has_nothing_on_the_card_is_in_no_list(idle: Child, name: str) -> None:
    assert LISTS[name](idle) == []


@pytest.mark.parametrize("call", ["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"])
def test_of_nobody_there_is_no_utilization(idle: Child, call: str) -> None:
    assert idle.code(call, CARD, 0) == NOT_FOUND


def test_the_details_have_what_the_container_counted(busy: Child) -> None:
    (row,) = busy.call("nvmlDeviceGetRunningProcessDetailList", CARD, VERSION_1, COMPUTE)
    assert row["usedGpuMemory"] == (CONTEXT_MIB + EACH_MIB) * MIB
    assert busy.call("nvmlDeviceGetRunningProcessDetailList", CARD, VERSION_1, GRAPHICS) == []


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("nvmlDeviceGetAccountingPids", ()),
        ("nvmlDeviceGetAccountingStats", (4242,)),
        ("nvmlDeviceGetAccountingStats_v2", (4242,)),
    ],
)
def test_accounting_which_keeps_the_ended_processes_of_others_is_refused(
    busy: Child, call: str, args: tuple[int, ...]
) -> None:
    assert busy.code(call, CARD, *args) == NOT_SUPPORTED
