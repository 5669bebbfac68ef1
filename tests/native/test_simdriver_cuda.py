"""The CUDA driver interface, by ctypes."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

MIB = 1 << 20


@pytest.fixture
def cuda(child: Callable[..., Child]) -> Child:
    process = child()
    process.open_cuda()
    return process


def test_calls_before_init_are_refused(child: Callable[..., Child]) -> None:
    process = child()
    assert process.call("cuDeviceGetCount", "&int") == [3, 0]
    assert process.call("cuDriverGetVersion", "&int") == [0, 12060]


def test_what_a_device_is(cuda: Child, two_cards: list[SimCard]) -> None:
    assert cuda.call("cuDeviceGetCount", "&int") == [0, 2]
    assert cuda.call("cuDeviceGet", "&int", 1) == [0, 1]
    assert cuda.call("cuDeviceGet", "&int", 2) == [101, 0]
    assert cuda.call("cuDeviceGetName", "&buffer", 64, 1) == [0, two_cards[1].name]
    assert cuda.call("cuDeviceTotalMem_v2", "&u64", 0) == [0, 8192 * MIB]
    assert cuda.call("cuDeviceGetPCIBusId", "&buffer", 64, 1) == [0, "0000:02:00.0"]
    assert cuda.call("cuDeviceGetAttribute", "&int", 75, 1) == [0, 8]
    assert cuda.call("cuDeviceGetAttribute", "&int", 76, 1) == [0, 6]


def test_memory_is_taken_and_given_back(cuda: Child) -> None:
    address = cuda.alloc(1000)
    assert cuda.call("cuMemGetInfo_v2", "&u64", "&u64") == [0, 7192 * MIB, 8192 * MIB]
    assert cuda.call("cuMemFree_v2", address) == [0]
    assert cuda.call("cuMemFree_v2", address) == [1]
    assert cuda.call("cuMemGetInfo_v2", "&u64", "&u64") == [0, 8192 * MIB, 8192 * MIB]


def test_every_family_counts(cuda: Child) -> None:
    assert cuda.call("cuMemAllocManaged", "&u64", 10 * MIB, 1)[0] == 0
    assert cuda.call("cuMemAllocAsync", "&u64", 10 * MIB, 0)[0] == 0
    status, _, pitch = cuda.call("cuMemAllocPitch_v2", "&u64", "&u64", 1000, 1024, 4)
    assert (status, pitch) == (0, 1024)
    assert cuda.call("cuMemGetInfo_v2", "&u64", "&u64")[1] == (8192 - 21) * MIB


def test_out_of_memory_takes_nothing(cuda: Child) -> None:
    cuda.alloc(8192)
    assert cuda.call("cuMemAlloc_v2", "&u64", 1)[0] == 2
    assert cuda.call("cuMemGetInfo_v2", "&u64", "&u64")[1] == 0
    assert cuda.call("cuMemAlloc_v2", "&u64", 0)[0] == 1


def test_copies_check_their_ranges(cuda: Child) -> None:
    address = cuda.alloc(1)
    assert cuda.call("cuMemcpyHtoD_v2", address, "x" * 100, 100) == [0]
    assert cuda.call("cuMemcpyHtoD_v2", address + MIB - 50, "x" * 100, 100) == [1]
    assert cuda.call("cuMemcpyDtoH_v2", "&u64", address, 8) == [0, 0]
    assert cuda.call("cuMemcpyDtoH_v2", "&u64", address + MIB, 8)[0] == 1


def test_reset_of_the_primary_context_frees_all(cuda: Child) -> None:
    cuda.alloc(100)
    assert cuda.call("cuDevicePrimaryCtxReset_v2", 0) == [0]
    assert cuda.call("cuMemAlloc_v2", "&u64", 1)[0] == 201
    cuda.open_cuda()
    assert cuda.call("cuMemGetInfo_v2", "&u64", "&u64")[1] == 8192 * MIB


def test_own_contexts_form_a_stack(cuda: Child) -> None:
    primary = cuda.call("cuCtxGetCurrent", "&ptr")[1]
    status, own = cuda.call("cuCtxCreate_v2", "&ptr", 0, 1)
    assert status == 0
    assert cuda.call("cuCtxGetDevice", "&int") == [0, 1]
    assert cuda.call("cuCtxPopCurrent_v2", "&ptr") == [0, own]
    assert cuda.call("cuCtxGetCurrent", "&ptr") == [0, primary]
    assert cuda.call("cuCtxPushCurrent_v2", own) == [0]
    cuda.alloc(10)
    assert cuda.call("cuCtxDestroy_v2", own) == [0]
    assert cuda.call("cuCtxGetDevice", "&int") == [0, 0]
    assert cuda.call("cuCtxPushCurrent_v2", own) == [201]


def test_what_a_context_has_in_flight_comes_to_its_end_first(cuda: Child) -> None:
    """And nobody else waits for that, who works in another context."""
    status, own = cuda.call("cuCtxCreate_v2", "&ptr", 0, 0)
    _, module = cuda.call("cuModuleLoadData", "&ptr", "image")
    _, function = cuda.call("cuModuleGetFunction", "&ptr", module, "step_500ms")
    began = time.monotonic()
    assert cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) == [0]
    assert (status, cuda.call("cuCtxPopCurrent_v2", "&ptr")) == (0, [0, own])
    ending = cuda.start("cuCtxDestroy_v2", own)
    cuda.alloc(1)
    assert not cuda.answered(ending)
    assert cuda.result(ending) == [0]
    assert time.monotonic() - began > 0.5
    assert cuda.call("cuCtxPushCurrent_v2", own) == [201]


def test_a_context_costs_what_the_cards_file_says(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, child: Callable[..., Child]
) -> None:
    SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(context_mib=300))
    process = child()
    process.open_cuda()
    assert box.used_mib(two_cards[0].uuid) == 300
    assert process.call("cuDevicePrimaryCtxRelease_v2", 0) == [0]
    assert box.used_mib(two_cards[0].uuid) == 0


def test_names_of_errors(cuda: Child) -> None:
    assert cuda.call("cuGetErrorName", 2, "&text") == [0, "CUDA_ERROR_OUT_OF_MEMORY"]
    assert cuda.call("cuGetErrorString", 100, "&text") == [0, "no CUDA-capable device is detected"]
    assert cuda.call("cuGetErrorName", 12345, "&text") == [1, None]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["NVIDIA A2"]),
        ("1,0", ["NVIDIA A2", "Tesla T4"]),
        ("0,7,1", ["Tesla T4"]),
        ("", []),
        ("-1", []),
        ("0,0", []),
        ("GPU-nowhere", []),
    ],
)
def test_cuda_visible_devices(child: Callable[..., Child], visible: str, names: list[str]) -> None:
    process = child(env={"CUDA_VISIBLE_DEVICES": visible})
    assert process.call("cuInit", 0) == [0 if names else 100]
    seen = [process.call("cuDeviceGetName", "&buffer", 64, index)[1] for index in range(len(names))]
    assert seen == names


def test_cuda_visible_devices_by_uuid(child: Callable[..., Child], two_cards: list[SimCard]) -> None:
    process = child(env={"CUDA_VISIBLE_DEVICES": two_cards[1].uuid[:12]})
    assert process.call("cuInit", 0) == [0]
    assert process.call("cuDeviceGetName", "&buffer", 64, 0) == [0, two_cards[1].name]


def test_without_uvm_cuda_does_not_start(box: SimDriver, child: Callable[..., Child]) -> None:
    (box.root / "dev/nvidia-uvm").unlink()
    assert child().call("cuInit", 0) == [999]
