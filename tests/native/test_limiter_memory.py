"""The limiter in front of the simulated driver: what programs in a container get, and what they see."""

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from native.limiterkit import HANG_TIMEOUT_S, LIBRARIES, MIB, SLOTS, USAGE_BYTES, Container, make_container
from native.simkit import Child

from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.bypass import CountedContainer
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.containers.held.usage_sizes import UsageSizes
from edgegpu_plugin.containers.usage_file import forget_most, read_usage
from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

LIMIT_MIB, CONTEXT_MIB = 1024, 100
LEFT_MIB = LIMIT_MIB - CONTEXT_MIB
OOM = 2

Start = Callable[[], Child]


@pytest.fixture
def driver(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    versions = SimVersions(context_mib=CONTEXT_MIB)
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit((two_cards[0], LIMIT_MIB), (two_cards[1], 2 * LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def start(container: Container) -> Iterator[Start]:
    """Starts processes in the container and ends them with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Child(container.libraries))


def _free_mib(process: Child) -> float:
    status, free, _ = process.call("cuMemGetInfo_v2", "&u64", "&u64")
    assert status == 0
    return int(free) / MIB


def _wait_for(what: Callable[[], bool], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_under_at_and_over_the_limit(
    start: Start, container: Container, driver: SimDriver, two_cards: list[SimCard]
) -> None:
    process = start()
    process.open_cuda()
    process.alloc(LEFT_MIB - 1)
    assert process.call("cuMemAlloc_v2", "&u64", MIB + 1) == [OOM, 0]
    last = process.alloc(1)
    assert _free_mib(process) == 0
    assert process.call("cuMemAlloc_v2", "&u64", 1) == [OOM, 0]
    assert container.refused() == 2
    assert driver.used_mib(two_cards[0].uuid) == LIMIT_MIB
    assert process.call("cuMemFree_v2", last) == [0]
    assert process.call("cuMemFree_v2", last) == [1]
    assert _free_mib(process) == 1


def test_the_limit_is_the_containers_and_not_a_process_s(start: Start) -> None:
    first, second = start(), start()
    first.open_cuda()
    second.open_cuda()
    first.alloc(600)
    assert second.call("cuMemAlloc_v2", "&u64", 300 * MIB)[0] == OOM
    second.alloc(LIMIT_MIB - 2 * CONTEXT_MIB - 600)
    third = start()
    assert third.call("cuInit", 0) == [0]
    assert third.call("cuDevicePrimaryCtxRetain", "&ptr", 0) == [OOM, None]


def test_what_the_driver_counts_beyond_the_container_s_own_count_takes_room(
    start: Start, container: Container, two_cards: list[SimCard]
) -> None:
    process = start()
    process.open_cuda()
    held = process.alloc(500)

    def missing(mib: int) -> None:
        container.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB, uncounted_mib=mib)
        time.sleep(0.3)

    missing(200)
    assert _free_mib(process) == LEFT_MIB - 700
    assert process.call("cuDeviceTotalMem_v2", "&u64", 0) == [0, LIMIT_MIB * MIB]
    process.call("nvmlInit")
    seen = process.call("nvmlDeviceGetMemoryInfo", ["dev", 0])
    assert seen == {"total": LIMIT_MIB * MIB, "free": (LEFT_MIB - 700) * MIB, "used": (CONTEXT_MIB + 700) * MIB}
    assert process.call("cuMemAlloc_v2", "&u64", (LEFT_MIB - 700) * MIB + 1) == [OOM, 0]
    assert process.call("cuMemAllocAsync", "&u64", (LEFT_MIB - 700) * MIB + 1, 0)[0] == OOM
    last = process.alloc(LEFT_MIB - 700)
    assert process.call("cuMemFree_v2", last) == [0]
    missing(LIMIT_MIB + 1)
    assert _free_mib(process) == 0
    assert process.call("cuMemAlloc_v2", "&u64", 1) == [OOM, 0]
    assert process.call("cuMemFree_v2", held) == [0]
    missing(0)
    process.alloc(LEFT_MIB)


def test_over_its_limit_a_container_gets_nothing_that_its_pool_keeps(
    start: Start, container: Container, two_cards: list[SimCard]
) -> None:
    process = start()
    process.open_cuda()
    process.alloc(300)
    status, address = process.call("cuMemAllocAsync", "&u64", 600 * MIB, 0)
    assert (status, process.call("cuMemFreeAsync", address, 0)) == (0, [0])
    container.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB, uncounted_mib=200)
    time.sleep(0.3)
    assert process.call("cuMemAllocAsync", "&u64", 600 * MIB, 0)[0] == OOM
    container.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB)
    time.sleep(0.3)
    assert process.call("cuMemAllocAsync", "&u64", 600 * MIB, 0)[0] == 0


def test_the_file_keeps_the_most_that_was_counted_at_once(start: Start, container: Container) -> None:
    """The plugin compares it with the driver's count, which is of another moment than the plugin's look."""

    def most() -> list[int]:
        counts = read_usage(container.usage.read_bytes())
        assert counts is not None
        return [bytes_ // MIB for bytes_ in counts.most.values()]

    process, other = start(), start()
    process.open_cuda()
    assert process.call("cuMemFree_v2", process.alloc(700)) == [0]
    assert most() == [CONTEXT_MIB + 700]
    forget_most(container.usage)
    assert most() == [0]
    process.alloc(1)
    assert most() == [CONTEXT_MIB + 1]
    other.open_cuda()
    assert most() == [2 * CONTEXT_MIB + 1]
    other.open_cuda(1)
    assert most() == [2 * CONTEXT_MIB + 1, CONTEXT_MIB]


def test_each_card_has_its_own_limit(start: Start) -> None:
    process = start()
    process.open_cuda()
    process.alloc(LEFT_MIB)
    process.open_cuda(1)
    assert process.call("cuDeviceTotalMem_v2", "&u64", 1) == [0, 2 * LIMIT_MIB * MIB]
    process.alloc(2 * LIMIT_MIB - CONTEXT_MIB)
    assert process.call("cuMemAlloc_v2", "&u64", 1)[0] == OOM


def test_what_cuda_and_nvml_say_of_the_card(start: Start) -> None:
    first, second = start(), start()
    first.open_cuda()
    first.alloc(200)
    second.open_cuda()
    assert second.call("cuMemGetInfo_v2", "&u64", "&u64") == [0, 624 * MIB, LIMIT_MIB * MIB]
    assert second.call("cuDeviceTotalMem_v2", "&u64", 0) == [0, LIMIT_MIB * MIB]
    second.call("nvmlInit")
    seen = second.call("nvmlDeviceGetMemoryInfo", ["dev", 0])
    assert seen == {"total": LIMIT_MIB * MIB, "free": 624 * MIB, "used": 400 * MIB}
    version_2 = 0x2000028
    seen = second.call("nvmlDeviceGetMemoryInfo", ["dev", 0], version_2)
    assert (seen["total"], seen["reserved"], seen["used"]) == (LIMIT_MIB * MIB, 0, 400 * MIB)
    listed = second.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])
    assert {(row["pid"], row["usedGpuMemory"]) for row in listed} == {
        (first.pid, 300 * MIB),
        (second.pid, 100 * MIB),
    }
    assert second.call("nvmlDeviceGetGraphicsRunningProcesses", ["dev", 0]) == []


def test_a_list_of_processes_without_a_place_is_refused(start: Start) -> None:
    """NVIDIA allows none where the count is 0, and there alone."""
    process = start()
    process.open_cuda()
    code = (
        "import ctypes, pynvml; pynvml.nvmlInit(); n = ctypes.c_uint(%d); "
        "f = pynvml._nvmlGetFunctionPointer(%r); "
        "print(f(pynvml.nvmlDeviceGetHandleByIndex(0), ctypes.byref(n), None), n.value)"
    )
    names = [f"nvmlDeviceGet{kind}RunningProcesses{form}" for kind in ("Compute", "Graphics") for form in ("", "_v3")]

    def answers(count: int) -> list[str]:
        environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
        env = dict(line.split("=", 1) for line in environment if "=" in line)
        return [
            subprocess.run(
                [sys.executable, "-c", code % (count, name)], env=env, capture_output=True, text=True, check=True
            ).stdout
            for name in names
        ]

    assert answers(8) == ["2 8\n"] * 4
    assert answers(0) == ["7 1\n"] * 2 + ["0 0\n"] * 2


@pytest.mark.parametrize("whose", ["another process", "the process itself"])
def test_a_slot_whose_pid_came_again_holds_nothing(start: Start, container: Container, whose: str) -> None:
    """The pid of a slot is another process's now: its memory is nobody's, neither the new one's."""
    process = start()
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        pid = other.pid if whose == "another process" else process.pid
        began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        container.write_slot(pid, start=began - 1, mib=700)
        assert container.counted() == 700 * MIB
        process.open_cuda()
        process.alloc(LEFT_MIB)  # before a refusal it is looked who lives
        assert container.counted() == LIMIT_MIB * MIB
        other.kill()


def test_another_containers_processes_are_not_seen(start: Start, driver: SimDriver, container: Container) -> None:
    inside = start()
    inside.open_cuda()
    with Child(driver.libraries) as outside:
        outside.open_cuda()
        outside.alloc(500)
        done = subprocess.run(
            [driver.nvidia_smi], env=container.environment(), capture_output=True, text=True, check=True
        )
        assert f"{CONTEXT_MIB}MiB / {LIMIT_MIB}MiB".replace(" ", "") in done.stdout.replace(" ", "")
        assert str(inside.pid) in done.stdout
        assert str(outside.pid) not in done.stdout
        inside.call("nvmlInit")
        assert [row["pid"] for row in inside.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])] == [inside.pid]


def test_get_proc_address_leads_to_the_limit(start: Start) -> None:
    process = start()
    process.open_cuda()
    for name, version in (("cuGetProcAddress_v2", "cuMemAlloc"), ("cuGetProcAddress_v2", "cuMemGetInfo")):
        status, address, found = process.call(name, version, "&ptr", 12060, 0, "&int")
        assert (status, found) == (0, 0)
        path = Path(f"/proc/{process.pid}/maps").read_text()
        (line,) = (row for row in path.splitlines() if _holds(row, address))
        assert line.endswith("/lib/libcuda.so.1")


def _holds(row: str, address: int) -> bool:
    low, high = (int(part, 16) for part in row.split(maxsplit=1)[0].split("-"))
    return low <= address < high


def test_a_killed_process_gives_its_memory_back(start: Start) -> None:
    first, second = start(), start()
    first.open_cuda()
    second.open_cuda()
    first.alloc(800)
    assert second.call("cuMemAlloc_v2", "&u64", 100 * MIB)[0] == OOM
    first.kill()
    second.alloc(LEFT_MIB)
    assert _free_mib(second) == 0


def test_one_that_nobody_waited_for_counts_no_more(start: Start, container: Container) -> None:
    second = start()
    second.open_cuda()
    first = Child(container.libraries)
    first.open_cuda()
    first.alloc(800)
    first.process.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    _wait_for(lambda: _free_mib(second) == LEFT_MIB, 1)
    first.kill()


_PROGRAM = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(800 << 20)) == 0
"""


def _run_python(container: Container, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM + code], env=container.environment(), stdout=subprocess.PIPE, text=True
    )


def test_exec_gives_back_what_the_program_before_held(start: Start, container: Container) -> None:
    process = _run_python(container, 'print("ready", flush=True); os.execv("/bin/sleep", ["sleep", "60"])')
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        second = start()
        _wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", 10)
        second.open_cuda()
        second.alloc(LEFT_MIB)
    finally:
        process.kill()
        process.communicate()


def test_a_forked_child_holds_nothing_and_frees_nothing(container: Container) -> None:
    code = """
free, total = ctypes.c_size_t(), ctypes.c_size_t()
child = os.fork()
if child == 0:
    assert cuda.cuMemFree_v2(at) != 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1)) != 0
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert free.value == 124 << 20, free.value
assert cuda.cuMemFree_v2(at) == 0
"""
    process = _run_python(container, code)
    process.communicate(timeout=HANG_TIMEOUT_S)
    assert process.returncode == 0
    assert container.counted() == CONTEXT_MIB * MIB


def test_a_fork_of_a_program_that_has_not_called_cuda_yet(container: Container) -> None:
    children = f"for _ in range(5):\n    if os.fork() == 0:\n        break\n{_PROGRAM}"
    code = "import os\n" + children.replace("800 << 20", "1 << 20") + "time.sleep(1)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], env=container.environment(), check=False, timeout=HANG_TIMEOUT_S
    )
    assert done.returncode == 0
    assert container.counted() <= LIMIT_MIB * MIB


def test_a_limit_that_changes_is_followed_within_a_second(
    start: Start, container: Container, two_cards: list[SimCard]
) -> None:
    process = start()
    process.open_cuda()
    held = process.alloc(LEFT_MIB)
    container.limit((two_cards[0], 2 * LIMIT_MIB), context_mib=CONTEXT_MIB)
    _wait_for(lambda: process.call("cuMemAlloc_v2", "&u64", LIMIT_MIB * MIB)[0] == 0, 1)
    container.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB)
    _wait_for(lambda: process.call("cuDeviceTotalMem_v2", "&u64", 0)[1] == LIMIT_MIB * MIB, 1)
    assert _free_mib(process) == 0
    assert process.call("cuMemAlloc_v2", "&u64", 1)[0] == OOM
    assert process.call("cuMemFree_v2", held) == [0]
    assert process.call("cuMemAlloc_v2", "&u64", 1)[0] == OOM  # it is still above


def test_a_container_goes_on_beside_a_plugin_that_counts_in_another_form(
    start: Start, container: Container, two_cards: list[SimCard]
) -> None:
    """As after an upgrade: its limiter stays, and the plugin leaves its figures alone until it starts again."""
    process = start()
    process.open_cuda()
    process.alloc(600)
    (container.folder / "form").write_text(f"2 {USAGE_BYTES}\n")
    before = container.usage.read_bytes()
    folders, key = ContainerFolders(root=container.folder.parent, proc=Path("/proc")), ("u", "main")
    held = {key: CountedContainer([container.usage], {two_cards[0].uuid: LIMIT_MIB * MIB})}
    assert folders.state(container.folder) is None
    assert folders.users(container.folder) == [process.pid]
    assert UncountedMemory().look({(key, two_cards[0].uuid): 700 * MIB}, held) == set()
    assert not UsageSizes().look(held)
    assert container.usage.read_bytes() == before
    process.alloc(LEFT_MIB - 600)
    assert process.call("cuMemAlloc_v2", "&u64", 1)[0] == OOM


@pytest.mark.parametrize("text", ["", "nonsense\n", "edgegpu-limits 1\ncard GPU-1 memory_bytes=9\n"])
def test_a_file_that_makes_no_sense_changes_nothing(start: Start, container: Container, text: str) -> None:
    process = start()
    process.open_cuda()
    container.write_limits(text)
    time.sleep(0.5)  # longer than the limiter lets a file lie
    assert process.call("cuDeviceTotalMem_v2", "&u64", 0) == [0, LIMIT_MIB * MIB]
    process.alloc(LEFT_MIB)
    assert process.call("cuMemAlloc_v2", "&u64", 1)[0] == OOM


@pytest.mark.parametrize("missing", ["limits", "usage", "card", "short"])
def test_without_a_limit_nothing_is_given(
    start: Start, container: Container, two_cards: list[SimCard], missing: str
) -> None:
    match missing:
        case "card":
            container.limit((two_cards[1], LIMIT_MIB), context_mib=CONTEXT_MIB)
        case "short":
            container.usage.write_bytes(b"\0" * 100)
        case name:
            (container.folder / name).unlink()
    process = start()
    assert process.call("cuInit", 0) == [0]
    assert process.call("cuDeviceGetCount", "&int") == [0, 2]
    status, context = process.call("cuDevicePrimaryCtxRetain", "&ptr", 0)
    if status == 0:  # a context of 0 bytes
        assert process.call("cuCtxSetCurrent", context) == [0]
        assert process.call("cuMemAlloc_v2", "&u64", 1) == [OOM, 0]
    else:
        assert status == OOM


def test_more_processes_than_slots_are_refused(start: Start, container: Container) -> None:
    with container.usage.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        container.fill_slots(SLOTS)
        process = start()
        assert process.call("cuInit", 0) == [0]
        assert process.call("cuDevicePrimaryCtxRetain", "&ptr", 0) == [OOM, None]
        container.fill_slots(SLOTS - 1)
        container.free_slot(SLOTS - 1)
        process.open_cuda()
        process.alloc(LEFT_MIB)
        other = start()
        assert other.call("cuInit", 0) == [0]
        assert other.call("cuDevicePrimaryCtxRetain", "&ptr", 0) == [OOM, None]
    # Nothing maps the file in this process's name any more: those slots are free again.
    process.kill()
    other.open_cuda()
    other.alloc(LEFT_MIB)


def test_without_a_driver_programs_run_and_are_told(tmp_path: Path, limiter_build: Path) -> None:
    container = make_container(tmp_path / "container", limiter_build, tmp_path / "none")
    with Child(container.libraries) as process:
        assert process.call("cuInit", 0) == [100]
        assert process.call("cuDriverGetVersion", "&int") == [100, 0]
        assert process.call("cuMemAlloc_v2", "&u64", 1) == [100, 0]
        assert process.code("nvmlInit") == 12


@pytest.mark.parametrize("driver_file", ["missing", "text", "foreign", "itself", "no folder"])
def test_true_runs_with_nothing_on_stderr(tmp_path: Path, limiter_build: Path, driver_file: str) -> None:
    folder = tmp_path / "driver"
    container = make_container(tmp_path / "container", limiter_build, folder)
    if driver_file != "no folder":
        folder.mkdir()
    for name in LIBRARIES:
        match driver_file:
            case "text":
                (folder / name).write_text("no library")
            case "foreign":
                data = bytearray((container.libraries / name).read_bytes())
                data[18:20] = b"\xb7\0"  # AArch64
                (folder / name).write_bytes(data)
            case "itself":
                (folder / name).symlink_to(container.libraries / name)
    preload = {"LD_PRELOAD": ":".join(str(container.libraries / name) for name in LIBRARIES)}
    done = subprocess.run(["/bin/true"], env={**container.environment(), **preload}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with Child(container.libraries, env=preload) as process:
        assert process.call("cuInit", 0) == [100]
        assert process.code("nvmlInit") == 12


def test_what_an_older_driver_lacks_is_answered_so(start: Start, driver: SimDriver) -> None:
    process = start()
    process.open_cuda()
    if not hasattr(ctypes.CDLL(str(driver.libraries / "libcuda.so.1")), "cuLogicalEndpointCreate"):
        assert process.call("cuLogicalEndpointCreate", 0, 0) == [801]
    assert process.call("nvmlInit") is None
    assert process.code("nvmlDeviceGetFanControlPolicy_v2", ["dev", 0], 0) == 13
