"""Memory across processes: seen by all, freed at every kind of end."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver

DEV = ["dev", 0]
MIB = 1 << 20


@pytest.fixture
def nvml(child: Callable[..., Child]) -> Child:
    process = child()
    process.call("nvmlInit")
    return process


def test_another_process_sees_who_holds_what(nvml: Child, child: Callable[..., Child]) -> None:
    user = child()
    user.open_cuda()
    user.alloc(512)
    [seen] = nvml.call("nvmlDeviceGetComputeRunningProcesses", DEV)
    assert (seen["pid"], seen["usedGpuMemory"]) == (user.pid, 512 * MIB)
    assert nvml.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 512 * MIB
    assert nvml.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 1]) == []
    assert nvml.call("nvmlDeviceGetGraphicsRunningProcesses", DEV) == []
    assert "python" in nvml.call("nvmlSystemGetProcessName", user.pid)


def test_a_process_sees_itself(child: Callable[..., Child]) -> None:
    user = child()
    user.call("nvmlInit")
    user.open_cuda()
    user.alloc(5)
    [seen] = user.call("nvmlDeviceGetComputeRunningProcesses", DEV)
    assert (seen["pid"], seen["usedGpuMemory"]) == (user.pid, 5 * MIB)


def test_a_context_without_memory_is_listed(nvml: Child, child: Callable[..., Child]) -> None:
    user = child()
    user.open_cuda()
    assert [p["pid"] for p in nvml.call("nvmlDeviceGetComputeRunningProcesses", DEV)] == [user.pid]


def test_the_card_is_full_for_all_together(child: Callable[..., Child]) -> None:
    first, second = child(), child()
    first.open_cuda()
    second.open_cuda()
    first.alloc(8000)
    assert second.call("cuMemAlloc_v2", "&u64", 193 * MIB)[0] == 2
    second.alloc(192)


def test_kill_frees_all(nvml: Child, child: Callable[..., Child]) -> None:
    user, other = child(), child()
    for process in (user, other):
        process.open_cuda()
        process.alloc(100)
    user.kill()
    assert nvml.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 100 * MIB
    assert [p["pid"] for p in nvml.call("nvmlDeviceGetComputeRunningProcesses", DEV)] == [other.pid]


def test_ordinary_exit_frees_all(box: SimDriver, two_cards: list[SimCard], child: Callable[..., Child]) -> None:
    user = child()
    user.open_cuda()
    user.alloc(100)
    assert box.used_mib(two_cards[0].uuid) == 100
    assert user.process.stdin is not None
    user.process.stdin.close()
    assert user.process.wait(20) == 0
    assert box.used_mib(two_cards[0].uuid) == 0


def test_many_killed_in_the_middle_of_work_leave_nothing(
    box: SimDriver, two_cards: list[SimCard], child: Callable[..., Child]
) -> None:
    users = [child() for _ in range(4)]
    for user in users:
        user.open_cuda()
        for _ in range(200):
            user.start("cuMemAlloc_v2", "&u64", MIB, thread=False)
    for user in users:
        user.kill()
    assert box.used_mib(two_cards[0].uuid) == 0
    survivor = child()
    survivor.open_cuda()
    survivor.alloc(8192)


def _only_child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="a new pid namespace needs root")
def test_pids_are_those_of_the_asker(nvml: Child, child: Callable[..., Child]) -> None:
    inside = child(prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    inside.call("nvmlInit")
    inside.open_cuda()
    inside.alloc(64)
    outer_pid = _only_child_of(inside.pid)
    assert [p["pid"] for p in nvml.call("nvmlDeviceGetComputeRunningProcesses", DEV)] == [outer_pid]
    assert [p["pid"] for p in inside.call("nvmlDeviceGetComputeRunningProcesses", DEV)] == [1]
    outside = child()
    outside.open_cuda()
    outside.alloc(36)
    assert [p["pid"] for p in inside.call("nvmlDeviceGetComputeRunningProcesses", DEV)] == [1]
    assert inside.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 100 * MIB
    os.kill(outer_pid, signal.SIGKILL)
    inside.process.wait(20)
    assert nvml.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 36 * MIB


FORK = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100 << 20)) == 0
pid = os.fork()
if pid == 0:
    os._exit(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os.execv(sys.executable, [sys.executable, "-c", "print('on'); input()"])
"""


def test_a_forked_child_has_no_cuda_and_exec_ends_a_context(box: SimDriver, two_cards: list[SimCard]) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(box.libraries)}
    with subprocess.Popen(
        ["python3", "-c", FORK], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "3\n"
        assert process.stdout.readline() == "on\n"
        assert box.used_mib(two_cards[0].uuid) == 0
        process.stdin.write("\n")
