"""A program in the container: takes card memory in one way until it is refused, says how much, and holds it.

`python ways.py WAY MIB`: takes at most that many MiB. It prints one line of JSON, and ends when its
standard input does. It needs NVIDIA's bindings (`cuda.bindings`) alone, and runs on the simulated driver as well.
"""
# ruff: noqa: ANN401 - the bindings are untyped

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver as cu

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
PIECE = 64 * MIB
SUCCESS = cu.CUresult.CUDA_SUCCESS


class RefusedError(Exception):
    """The driver refused; the text is its code."""


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call gave besides its status; raise `RefusedError` where that is no success."""
    if answer[0] != SUCCESS:
        raise RefusedError(answer[0].name)
    return answer[1] if len(answer) == 2 else answer[1:]


def pool_properties() -> Any:
    """Return the properties of a pool on the first card."""
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return properties


def alloc(size: int) -> int:
    """Take plain memory."""
    ok(cu.cuMemAlloc(size))
    return size


def small(_: int) -> int:
    """Take 1 MiB at a time."""
    ok(cu.cuMemAlloc(MIB))
    return MIB


def pitch(size: int) -> int:
    """Take rows."""
    _, row = ok(cu.cuMemAllocPitch(1 * MIB, size // MIB, 4))
    return int(row) * (size // MIB)


def managed(size: int) -> int:
    """Take managed memory, and have it on the card."""
    address = ok(cu.cuMemAllocManaged(size, 1))
    ok(cu.cuMemsetD8(address, 1, size))
    ok(cu.cuCtxSynchronize())
    return size


def asynchronous(size: int) -> int:
    """Take memory of the card's own pool."""
    ok(cu.cuMemAllocAsync(size, 0))
    ok(cu.cuCtxSynchronize())
    return size


class OwnPool:
    """Takes memory of a pool of its own."""

    def __init__(self) -> None:
        self.pool = ok(cu.cuMemPoolCreate(pool_properties()))

    def __call__(self, size: int) -> int:
        ok(cu.cuMemAllocFromPoolAsync(size, self.pool, 0))
        ok(cu.cuCtxSynchronize())
        return size


class KeptPools:
    """Takes pools which keep what was freed: each has a piece that nobody uses."""

    def __call__(self, size: int) -> int:
        pool = ok(cu.cuMemPoolCreate(pool_properties()))
        keep = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ok(cu.cuMemPoolSetAttribute(pool, keep, cu.cuuint64_t(1 << 40)))
        ok(cu.cuMemFreeAsync(ok(cu.cuMemAllocFromPoolAsync(size, pool, 0)), 0))
        ok(cu.cuCtxSynchronize())
        return size


def virtual(size: int, *, mapped: bool = True) -> int:
    """Take backing, and give it an address."""
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    handle = ok(cu.cuMemCreate(size, properties, 0))
    if mapped:
        ok(cu.cuMemMap(ok(cu.cuMemAddressReserve(size, 0, 0, 0)), size, 0, handle, 0))
        ok(cu.cuMemRelease(handle))
    return size


def unmapped(size: int) -> int:
    """Take backing without an address."""
    return virtual(size, mapped=False)


def array(size: int) -> int:
    """Take arrays."""
    wanted = cu.CUDA_ARRAY_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels = 4096, size // (4096 * 4), 1
    wanted.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    ok(cu.cuArrayCreate(wanted))
    return size


def _deep(size: int, *, depth: int) -> Any:
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.Depth, wanted.NumChannels = 1024, size // (1024 * 4 * max(depth, 1)), depth, 1
    wanted.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    return wanted


def array3d(size: int) -> int:
    """Take arrays of three dimensions."""
    ok(cu.cuArray3DCreate(_deep(size, depth=16)))
    return size


def mipmap(size: int) -> int:
    """Take arrays of several levels."""
    ok(cu.cuMipmappedArrayCreate(_deep(size, depth=0), 2))
    return size


def contexts(_: int) -> int:
    """Make contexts; what each takes is known to the one who looks from outside."""
    takes_params = "ctxCreateParams" in (cu.cuCtxCreate.__doc__ or "")  # since the bindings of CUDA 13
    ok(cu.cuCtxCreate(None, 0, 0) if takes_params else cu.cuCtxCreate(0, 0))
    return 0


def _alloc_node(size: int) -> Any:
    node = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    node.poolProps = pool_properties()
    node.bytesize = size
    return node


def graph(size: int) -> int:
    """Launch graphs that allocate."""
    made = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddMemAllocNode(made, None, 0, _alloc_node(size)))
    ready = ok(cu.cuGraphInstantiate(made, 0))
    ok(cu.cuGraphLaunch(ready, 0))
    ok(cu.cuCtxSynchronize())
    return size


def captured(size: int) -> int:
    """Capture an allocation, and launch it."""
    stream = ok(cu.cuStreamCreate(1))
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    status, _ = cu.cuMemAllocAsync(size, stream)
    made = ok(cu.cuStreamEndCapture(stream))
    if status != SUCCESS:
        raise RefusedError(status.name)
    ok(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(made, 0)), 0))
    ok(cu.cuCtxSynchronize())
    return size


def module(size: int) -> int:
    """Load modules with a large variable."""
    text = f".version 7.0\n.target sm_60\n.address_size 64\n.visible .global .align 8 .b8 room[{size}];\n"
    ok(cu.cuModuleLoadData(text.encode() + b"\0"))
    return size


def library(size: int) -> int:
    """Load libraries with a large variable."""
    text = f".version 7.0\n.target sm_60\n.address_size 64\n.visible .global .align 8 .b8 room[{size}];\n"
    made = ok(cu.cuLibraryLoadData(text.encode() + b"\0", None, None, 0, None, None, 0))
    ok(cu.cuLibraryGetGlobal(made, b"room"))
    return size


class Limit:
    """Raises one of the context's own limits by a piece each time."""

    def __init__(self, which: str) -> None:
        self.which = getattr(cu.CUlimit, which)
        self.before = ok(cu.cuCtxGetLimit(self.which))

    def __call__(self, size: int) -> int:
        ok(cu.cuCtxSetLimit(self.which, int(self.before) + size))
        self.before += size
        return size


TAKERS: tuple[Callable[[int], int], ...] = (
    *(alloc, small, pitch, managed, asynchronous, virtual, unmapped, array, array3d, mipmap),
    *(contexts, graph, captured, module, library),
)
WAYS: dict[str, Callable[[], Callable[[int], int]]] = {
    "own_pool": OwnPool,
    "kept_pools": KeptPools,
    "heap": lambda: Limit("CU_LIMIT_MALLOC_HEAP_SIZE"),
    "printf": lambda: Limit("CU_LIMIT_PRINTF_FIFO_SIZE"),
}


def taker(way: str) -> Callable[[int], int]:
    """Return what takes a piece in that way; the driver has been started."""
    plain = {one.__name__: one for one in TAKERS}
    return plain[way] if way in plain else WAYS[way]()


def take(way: str, most: int) -> dict[str, Any]:
    """Take memory in one way until it is refused, or `most` bytes or 4 096 times; what came of it."""
    taken, why, times = 0, "", 0
    try:
        ok(cu.cuInit(0))
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        one = taker(way)
        while taken < most and times < 4096:
            taken += one(PIECE)
            times += 1
    except RefusedError as refused:
        why = str(refused)
    return {"way": way, "taken_mib": taken // MIB, "times": times, "why": why.removeprefix("CUDA_")}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(take(sys.argv[1], int(sys.argv[2]) * MIB)) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
