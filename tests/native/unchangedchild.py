"""A program: says what the driver answers about its cards, or to calls without a place for the answer, as JSON."""

import ctypes
import json
import os
import struct
import sys
from collections.abc import Mapping

import pynvml

ATTRIBUTES = 150
TABLES = (
    "6bd5fb6c5bf4e74a8987d93912fd9df9",
    "f8cff95121468b4eb9e2fb469e7c0dd9",
    "a094798c2e742e7493f20800200c0a66",
    "00000000000000000000000000000000",
)
"""The private tables that the simulated driver has, and one that it has not."""
_BLOCK = 2 << 20
_ON_CARD = struct.pack("=4i", 1, 0, 1, 0).ljust(128, b"\0")
_FLAT, _DEEP = struct.pack("=2Q2I", 64, 64, 0x20, 1), struct.pack("=3Q3I4x", 64, 64, 0, 0x20, 1, 0)
FAMILIES: dict[str, tuple[int | bytes, ...]] = {
    "cuMemAlloc_v2": (0, _BLOCK),
    "cuMemAllocPitch_v2": (0, 0, 1024, 1024, 4),
    "cuMemAllocManaged": (0, _BLOCK, 1),
    "cuMemAllocAsync": (0, _BLOCK, 0),
    "cuMemAllocAsync_ptsz": (0, _BLOCK, 0),
    "cuMemAllocFromPoolAsync": (0, _BLOCK, 0, 0),
    "cuMemAllocFromPoolAsync_ptsz": (0, _BLOCK, 0, 0),
    "cuMemCreate": (0, _BLOCK, _ON_CARD, 0),
    "cuMemPoolCreate": (0, _ON_CARD),
    "cuArrayCreate_v2": (0, _FLAT),
    "cuArray3DCreate_v2": (0, _DEEP),
    "cuMipmappedArrayCreate": (0, _DEEP, 1),
    "cuModuleLoad": (0, b"/dev/null"),
    "cuModuleLoadData": (0, b"image"),
    "cuModuleLoadDataEx": (0, b"image", 0, 0, 0),
    "cuModuleLoadFatBinary": (0, b"image"),
    "cuLibraryLoadData": (0, b"image", 0, 0, 0, 0, 0, 0),
    "cuCtxCreate_v2": (0, 0, 0),
    "cuDevicePrimaryCtxRetain": (0, 0),
    "cuMemGetInfo_v2": (0, 0),
    "cuDeviceTotalMem_v2": (0, 0),
}
"""Calls that would take memory, or say how much there is, but for the place of their answer."""
NVML_OF_ALL = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")
NVML_OF_EACH = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetIndex",
)


def _answer(name: str, *args: object) -> object:
    function = getattr(ctypes.CDLL("libcuda.so.1"), name, None)
    return "none" if function is None else function(*args)


def _number(name: str, *args: object) -> tuple[object, int]:
    out = ctypes.c_int(-1)
    return _answer(name, ctypes.byref(out), *args), out.value


def _text(name: str, *args: object, size: int = 64) -> tuple[object, str]:
    out = ctypes.create_string_buffer(size)
    return _answer(name, out, *args), out.raw.hex()


def _card(index: int) -> list[object]:
    bus = ctypes.create_string_buffer(64)
    told: list[object] = [_answer("cuDeviceGetPCIBusId", bus, 64, index), bus.value.decode()]
    told += [_text(name, index, size=16) for name in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2")]
    told += [_answer("cuDeviceGetName", name := ctypes.create_string_buffer(64), 64, index), name.value.decode()]
    told += [_number("cuDeviceGet", index), _number("cuDeviceGetByPCIBusId", bus)]
    major, minor = ctypes.c_int(), ctypes.c_int()
    told += [_answer("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), index)]
    return [
        *told,
        major.value,
        minor.value,
        *(_number("cuDeviceGetAttribute", one, index) for one in range(ATTRIBUTES)),
    ]


def _table(number: str) -> tuple[object, bool]:
    out = ctypes.c_void_p()
    return _answer("cuGetExportTable", ctypes.byref(out), bytes.fromhex(number)), out.value is not None


def _nvml(name: str, *args: object) -> str:
    try:
        return str(getattr(pynvml, name)(*args))
    except pynvml.NVMLError as error:
        return f"error {error.value}"


def cards() -> list[object]:
    """Return what the driver says of itself and its cards."""
    told: list[object] = [_answer("cuInit", 0), _number("cuDriverGetVersion"), _number("cuDeviceGetCount")]
    told += [_card(index) for index in range(_number("cuDeviceGetCount")[1])]
    told += [_table(number) for number in TABLES]
    pynvml.nvmlInit()
    told += [_nvml(name) for name in NVML_OF_ALL]
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [*told, *(_nvml(name, handle) for handle in handles for name in NVML_OF_EACH)]


def _open() -> None:
    context = ctypes.c_void_p()
    assert _answer("cuInit", 0) == 0
    assert _answer("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0) == 0
    assert _answer("cuCtxSetCurrent", context) == 0


def _first_device(library: ctypes.CDLL) -> ctypes.c_void_p:
    device = ctypes.c_void_p()
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    return device


def answers(calls: Mapping[str, tuple[int | bytes, ...]], *, opened: bool) -> dict[str, object]:
    """Return what each function answers, each in a process of its own: -N where signal N ended that."""
    told: dict[str, object] = {}
    for name, args in calls.items():
        is_nvml = name.startswith("nvml")
        library = ctypes.CDLL("libnvidia-ml.so.1" if is_nvml else "libcuda.so.1")
        if not hasattr(library, name):
            continue
        child = os.fork()
        if child == 0:
            given: list[object] = [one if isinstance(one, bytes) else ctypes.c_void_p(one) for one in args]
            if opened and is_nvml:
                given[0] = _first_device(library)
            elif opened:
                _open()
            answer = getattr(library, name)(*given)
            os._exit(0 if answer == 0 else 1 + answer % 250)
        told[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return told


def main() -> None:
    what, *names = sys.argv[1:]
    calls = dict.fromkeys(names, (0,) * 10) if names else FAMILIES
    sys.stdout.write(json.dumps(cards() if what == "cards" else answers(calls, opened=what == "opened")))


if __name__ == "__main__":
    main()
