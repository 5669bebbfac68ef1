"""A program in the container: takes card memory in one way until it is refused, says how much, and holds it.

`python ways.py WAY MIB`: prints a line when its context is there, and begins at the next line of its standard input.
It takes at most that many MiB, prints a line of JSON, and ends when its standard input does. It needs NVIDIA's bindings
(`cuda.bindings`) alone, and runs on the simulated driver as well.
`python ways.py late_code MIB` fills the card by plain memory, to the last MiB, and then has code loaded and run.
"""
# ruff: noqa: ANN401 - the bindings are untyped

from __future__ import annotations

import ctypes
import sys
import time
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver as cu
from gpu.limiter.programs.cuda_calls import (
    KERNELS,
    MIB,
    SUCCESS,
    TARGETS,
    RefusedError,
    function,
    heard,
    image,
    launch,
    load,
    ok,
    say,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 64 * MIB
MOST_TIMES, MOST_S = 4096, 20.0


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


def green(_: int) -> int:
    """Make green contexts of all multiprocessors."""
    whole = ok(cu.cuDeviceGetDevResource(0, cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    flags = cu.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    ok(cu.cuGreenCtxCreate(ok(cu.cuDevResourceGenerateDesc([whole], 1)), 0, flags))
    return 0


def looked_up(size: int) -> int:
    """Take plain memory by the function that cuGetProcAddress gives."""
    found, _ = ok(cu.cuGetProcAddress(b"cuMemAlloc", 12000, 0))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(int(found))
    status = call(ctypes.byref(ctypes.c_uint64()), size)
    ok((cu.CUresult(status), None))
    return size


def _alloc_node(size: int) -> Any:
    node = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    node.poolProps = pool_properties()
    node.bytesize = size
    return node


def graph(size: int) -> int:
    """Launch graphs that allocate."""
    made = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddMemAllocNode(made, None, 0, _alloc_node(size)))
    return _launched(made, size)


def any_node(size: int) -> int:
    """Launch graphs that allocate by a node of any kind."""
    made, node = ok(cu.cuGraphCreate(0)), cu.CUgraphNodeParams()
    node.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC
    node.alloc.poolProps, node.alloc.bytesize = pool_properties(), size
    edges = (None,) if "dependencyData" in (cu.cuGraphAddNode.__doc__ or "") else ()  # since the bindings of CUDA 13
    ok(cu.cuGraphAddNode(made, None, *edges, 0, node))
    return _launched(made, size)


def _launched(made: Any, size: int) -> int:
    ok(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(made, 0)), 0))
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


def load_library(text: str) -> Any:
    """Load PTX as a library, for the first kind of card that the driver takes."""
    for target in TARGETS:
        status, made = cu.cuLibraryLoadData(image(text, target), None, None, 0, None, None, 0)
        if status == SUCCESS:
            break
    return ok((status, made))


def module(size: int) -> int:
    """Load modules with a large variable, and ask where it is: a driver may load it no sooner."""
    ok(cu.cuModuleGetGlobal(load(f".visible .global .align 8 .b8 room[{size}];\n"), b"room"))
    return size


def library(size: int) -> int:
    """Load libraries with a large variable."""
    made = load_library(f".visible .global .align 8 .b8 room[{size}];\n")
    ok(cu.cuLibraryGetGlobal(made, b"room"))
    return size


class Limit:
    """Raises one of the context's own limits by a piece each time."""

    def __init__(self, which: str) -> None:
        self.which = getattr(cu.CUlimit, which)
        self.now = int(ok(cu.cuCtxGetLimit(self.which)))

    def __call__(self, size: int) -> int:
        self.now += size
        ok(cu.cuCtxSetLimit(self.which, self.now))
        return size


class Stacks:
    """Raises the stack of each thread that the card can run at once, and runs a kernel that has one."""

    def __init__(self) -> None:
        counts = cu.CUdevice_attribute
        processors = ok(cu.cuDeviceGetAttribute(counts.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
        each = ok(cu.cuDeviceGetAttribute(counts.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0))
        self.threads = int(processors * each)
        self.limit = Limit("CU_LIMIT_STACK_SIZE")
        self.kernel, self.out = function(load(KERNELS), "local_memory"), int(ok(cu.cuMemAlloc(4096)))

    def __call__(self, size: int) -> int:
        each = -(-size // self.threads // 16) * 16
        self.limit(each)
        launch(self.kernel, self.out, 0)
        ok(cu.cuCtxSynchronize())
        return each * self.threads


TAKERS: tuple[Callable[[int], int], ...] = (
    *(alloc, small, looked_up, pitch, managed, asynchronous, virtual, unmapped, array, array3d, mipmap),
    *(contexts, green, graph, any_node, captured, module, library),
)
WAYS: dict[str, Callable[[], Callable[[int], int]]] = {
    "own_pool": OwnPool,
    "kept_pools": KeptPools,
    "heap": lambda: Limit("CU_LIMIT_MALLOC_HEAP_SIZE"),
    "printf": lambda: Limit("CU_LIMIT_PRINTF_FIFO_SIZE"),
    "stacks": Stacks,
}


def taker(way: str) -> Callable[[int], int]:
    """Return what takes a piece in that way; the driver has been started."""
    plain = {one.__name__: one for one in TAKERS}
    return plain[way] if way in plain else WAYS[way]()


def take(one: Callable[[int], int], most: int) -> dict[str, Any]:
    """Take memory in one way until it is refused, or `most` bytes, 4 096 times or 20 s; what came of it."""
    taken, why, times, until = 0, "", 0, time.monotonic() + MOST_S
    try:
        while taken < most and times < MOST_TIMES and time.monotonic() < until:
            taken += one(PIECE)
            times += 1
    except RefusedError as refused:
        why = str(refused)
    return {"taken_mib": taken // MIB, "times": times, "why": why}


def late_code(out: int, most: int) -> dict[str, Any]:
    """Fill the card to the last MiB; then code is loaded and run. It may be refused, and nothing else."""
    taken = 0
    for size in (PIECE, MIB):
        while taken < most and cu.cuMemAlloc(size)[0] == SUCCESS:
            taken += size
    try:
        launch(function(load(KERNELS), "local_memory"), out, 0)
        ok(cu.cuCtxSynchronize())
        why = "its kernel ran"
    except RefusedError as refused:
        why = f"its kernel: {refused}"
    return {"taken_mib": taken // MIB, "times": 1, "why": why}


def main(way: str, most: int) -> dict[str, Any]:
    """Start the driver, wait for the sign to begin, and take memory."""
    try:
        start()
        late = way == "late_code"
        one = None if late else taker(way)
        out = int(ok(cu.cuMemAlloc(4096))) if late else 0
    except RefusedError as refused:
        return {"taken_mib": 0, "times": 0, "why": str(refused)}
    say(ready=1)
    heard()
    return late_code(out, most) if one is None else take(one, most)


if __name__ == "__main__":
    say(**main(sys.argv[1], int(sys.argv[2]) * MIB))
    sys.stdin.read()
