"""A program: plays one scenario on the driver by NVIDIA's own Python bindings, and writes what came of it as JSON."""
# ruff: noqa: ANN401 - the bindings are untyped

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

MIB = 1 << 20


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call gave besides its status, which has to be success."""
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def name(answer: tuple[Any, ...]) -> str:
    """Return the status of a call less its usual beginning."""
    return str(answer[0].name).removeprefix("CUDA_")


def used_mib() -> int:
    free, total = ok(cu.cuMemGetInfo())
    return int(total - free) // MIB


def elapsed_ms(first: Any, last: Any) -> float:
    return float(round(ok(cu.cuEventElapsedTime(first, last)), 2))


def launch(function: Any, stream: Any = 0) -> None:
    ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))


def kernel(function: str) -> Any:
    return ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(b"image")), function.encode()))


def memory() -> dict[str, Any]:
    free, total = ok(cu.cuMemGetInfo())
    address = ok(cu.cuMemAlloc(MIB))
    held = free - ok(cu.cuMemGetInfo())[0]
    ok(cu.cuMemFree(address))
    return {"version": ok(cu.cuDriverGetVersion()), "held": held, "too much": name(cu.cuMemAlloc(total + 1))}


def pools() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    pool = ok(cu.cuDeviceGetDefaultMemPool(0))
    first, second = ok(cu.cuMemAllocAsync(10 * MIB, 0)), ok(cu.cuMemAllocAsync(20 * MIB, 0))
    seen["taken"] = used_mib()
    ok(cu.cuMemFreeAsync(first, 0))
    seen["freed, not synchronised"] = used_mib()
    ok(cu.cuStreamSynchronize(0))
    seen["synchronised"] = used_mib()
    attribute = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cu.cuMemPoolSetAttribute(pool, attribute, cu.cuuint64_t(100 * MIB)))
    ok(cu.cuMemFreeAsync(second, 0))
    ok(cu.cuStreamSynchronize(0))
    seen["kept below the threshold"] = used_mib()
    ok(cu.cuMemPoolTrimTo(pool, 0))
    seen["trimmed"] = used_mib()
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    own = ok(cu.cuMemPoolCreate(props))
    third = ok(cu.cuMemAllocFromPoolAsync(30 * MIB, own, 0))
    ok(cu.cuMemFreeAsync(ok(cu.cuMemAllocFromPoolAsync(20 * MIB, own, 0)), 0))
    seen["own pool"] = used_mib()
    ok(cu.cuMemPoolDestroy(own))
    seen["destroyed, not freed"] = used_mib()
    ok(cu.cuMemFreeAsync(third, 0))
    ok(cu.cuStreamSynchronize(0))
    seen["freed"] = used_mib()
    seen["too much"] = name(cu.cuMemAllocAsync(1 << 40, 0))
    return seen


def virtual_memory() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    props = cu.CUmemAllocationProp()
    props.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    file = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    props.requestedHandleTypes = file
    address = ok(cu.cuMemAddressReserve(1 << 40, 0, 0, 0))
    seen["reserved"] = used_mib()
    backing = ok(cu.cuMemCreate(64 * MIB, props, 0))
    seen["created"] = used_mib()
    ok(cu.cuMemMap(address, 64 * MIB, 0, backing, 0))
    ok(cu.cuMemRelease(backing))
    seen["released, still mapped"] = used_mib()
    exported = ok(cu.cuMemExportToShareableHandle(ok(cu.cuMemRetainAllocationHandle(int(address))), file, 0))
    ok(cu.cuMemImportFromShareableHandle(exported, file))
    seen["imported"] = used_mib()
    ok(cu.cuMemRelease(backing))
    ok(cu.cuMemUnmap(address, 64 * MIB))
    seen["unmapped"] = used_mib()
    ok(cu.cuMemAddressFree(address, 1 << 40))
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    ok(cu.cuMemCreate(64 * MIB, props, 0))
    seen["on the host"] = used_mib()
    return seen


def arrays() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    flat = cu.CUDA_ARRAY_DESCRIPTOR()
    flat.Width, flat.Height, flat.NumChannels = 1024, 1024, 4
    flat.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    array = ok(cu.cuArrayCreate(flat))
    seen["2D"] = used_mib()
    deep = cu.CUDA_ARRAY3D_DESCRIPTOR()
    deep.Width, deep.Height, deep.Depth, deep.NumChannels = 256, 256, 64, 1
    deep.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    ok(cu.cuArray3DCreate(deep))
    seen["3D"] = used_mib()
    deep.Width, deep.Height, deep.Depth, deep.NumChannels = 2048, 2048, 0, 4
    mipmap = ok(cu.cuMipmappedArrayCreate(deep, 3))
    seen["mipmap"] = used_mib()
    ok(cu.cuArrayDestroy(array))
    ok(cu.cuMipmappedArrayDestroy(mipmap))
    seen["destroyed"] = used_mib()
    return seen


def graphs() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    graph = ok(cu.cuGraphCreate(0))
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = 40 * MIB
    node = ok(cu.cuGraphAddMemAllocNode(graph, None, 0, params))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    seen["instantiated"] = used_mib()
    ok(cu.cuGraphLaunch(executable, 0))
    seen["launched"] = used_mib()
    seen["launched again, not freed"] = name(cu.cuGraphLaunch(executable, 0))
    ok(cu.cuMemFree(params.dptr))
    seen["freed, not trimmed"] = used_mib()
    ok(cu.cuDeviceGraphMemTrim(0))
    seen["trimmed"] = used_mib()
    ok(cu.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    for _ in range(10):
        ok(cu.cuGraphLaunch(executable, 0))
    seen["ten launches with a free node"] = used_mib()
    params.bytesize = 1 << 40
    ok(cu.cuGraphAddMemAllocNode(graph, None, 0, params))
    seen["too much"] = name(cu.cuGraphLaunch(ok(cu.cuGraphInstantiate(graph, 0)), 0))
    return seen


def captures() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    modes = cu.CUstreamCaptureMode
    stream, other = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    function = kernel("step_2ms")
    ok(cu.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
    launch(function, stream)
    ok(cu.cuMemAllocAsync(8 * MIB, stream))
    seen["status"] = ok(cu.cuStreamIsCapturing(stream)).name
    ok(cu.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_RELAXED))
    ok(cu.cuStreamSynchronize(other))
    ok(cu.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
    graph = ok(cu.cuStreamEndCapture(stream))
    seen["captured"] = used_mib()
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    first, last = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    ok(cu.cuEventRecord(first, stream))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuEventRecord(last, stream))
    ok(cu.cuEventSynchronize(last))
    seen["launched"] = used_mib()
    seen["milliseconds"] = elapsed_ms(first, last)
    ok(cu.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
    seen["an unsafe call"] = name(cu.cuMemAlloc(MIB))
    seen["ended"] = name(cu.cuStreamEndCapture(stream))
    return seen


def times() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    stream, function = ok(cu.cuStreamCreate(1)), kernel("step_5ms")
    first, last = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    began = time.monotonic()
    ok(cu.cuEventRecord(first, stream))
    for _ in range(10):
        launch(function, stream)
    ok(cu.cuEventRecord(last, stream))
    seen["submitted at once"] = time.monotonic() - began < 0.045  # the kernels take 50 ms
    seen["stream"] = name(cu.cuStreamQuery(stream))
    seen["event"] = name(cu.cuEventQuery(last))
    seen["time"] = name(cu.cuEventElapsedTime(first, last))
    cpu = time.process_time()
    ok(cu.cuStreamSynchronize(stream))
    seen["no busy waiting"] = time.process_time() - cpu < 0.02
    seen["waited"] = 0.049 < time.monotonic() - began < 0.5
    seen["after"] = [name(cu.cuStreamQuery(stream)), name(cu.cuEventQuery(last))]
    seen["milliseconds"] = elapsed_ms(first, last)
    return seen


def waits() -> dict[str, Any]:
    """A stream waits for another's event, for a value that a later launch's stream writes, and calls the host."""
    seen: dict[str, Any] = {}
    one, two = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    function = kernel("step_3ms")
    events = [ok(cu.cuEventCreate(0)) for _ in range(3)]
    ok(cu.cuEventRecord(events[0], one))
    launch(function, one)
    ok(cu.cuEventRecord(events[1], one))
    ok(cu.cuStreamWaitEvent(two, events[1], 0))
    launch(function, two)
    ok(cu.cuEventRecord(events[2], two))
    ok(cu.cuStreamSynchronize(two))
    seen["after the other"] = elapsed_ms(events[0], events[2])
    address = ok(cu.cuMemAlloc(4))
    ok(cu.cuStreamWaitValue32(one, address, 7, 0))
    launch(function, one)
    time.sleep(0.01)
    seen["waits for a value"] = name(cu.cuStreamQuery(one))
    ok(cu.cuStreamWriteValue32(two, address, 7, 0))
    ok(cu.cuStreamSynchronize(one))
    seen["has it"] = name(cu.cuStreamQuery(one))
    return seen


def contexts() -> dict[str, Any]:
    seen: dict[str, Any] = {"primary": used_mib()}
    own = ok(cu.cuCtxCreate(None, 0, 0))
    seen["own"] = used_mib()
    ok(cu.cuMemAlloc(50 * MIB))
    pooled = ok(cu.cuMemAllocAsync(50 * MIB, 0))
    launch(kernel("step_50ms"))
    seen["filled"] = used_mib()
    ok(cu.cuCtxDestroy(own))
    seen["destroyed"] = used_mib()
    ok(cu.cuMemAlloc(50 * MIB))
    ok(cu.cuMemFree(pooled))
    ok(cu.cuDevicePrimaryCtxReset(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    seen["reset"] = used_mib()
    module = ok(cu.cuModuleLoadData(b"image"))
    seen["module"] = used_mib()
    ok(cu.cuModuleUnload(module))
    library = ok(cu.cuLibraryLoadData(b"image", None, None, 0, None, None, 0))
    seen["library"] = used_mib()
    ok(cu.cuLibraryGetKernel(library, b"kernel"))
    seen["its kernel"] = used_mib()
    ok(cu.cuLibraryUnload(library))
    seen["unloaded"] = used_mib()
    return seen


def green_contexts() -> dict[str, Any]:
    seen: dict[str, Any] = {"primary": used_mib()}
    whole = ok(cu.cuDeviceGetDevResource(0, cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, count, rest = ok(cu.cuDevSmResourceSplitByCount(2, whole, 0, 8))
    seen["multiprocessors"] = [whole.sm.smCount, count, groups[0].sm.smCount, rest.sm.smCount]
    description = ok(cu.cuDevResourceGenerateDesc([groups[0]], 1))
    green = ok(cu.cuGreenCtxCreate(description, 0, cu.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
    seen["created"] = used_mib()
    stream = ok(cu.cuGreenCtxStreamCreate(green, cu.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
    ok(cu.cuCtxPushCurrent(ok(cu.cuCtxFromGreenCtx(green))))
    launch(kernel("step_1ms"), stream)
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuMemAlloc(10 * MIB))
    seen["filled"] = used_mib()
    ok(cu.cuCtxPopCurrent())
    ok(cu.cuGreenCtxDestroy(green))
    seen["destroyed"] = used_mib()
    return seen


def host_memory() -> dict[str, Any]:
    """What the host can read costs the card only where it is managed; a stream waits for what the host writes there."""
    seen: dict[str, Any] = {}
    pinned = ok(cu.cuMemHostAlloc(64 * MIB, 0))
    ok(cu.cuMemAllocHost(MIB))
    seen["pinned"] = used_mib()
    managed = int(ok(cu.cuMemAllocManaged(5 * MIB, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)))
    ctypes.c_uint32.from_address(managed).value = 3
    seen["managed"] = [used_mib(), ctypes.c_uint32.from_address(managed).value]
    stream = ok(cu.cuStreamCreate(1))
    ok(cu.cuStreamWaitValue32(stream, managed, 4, 0))
    ok(cu.cuStreamWriteValue32(stream, managed + 4, 9, 0))
    time.sleep(0.01)
    seen["waits"] = name(cu.cuStreamQuery(stream))
    ctypes.c_uint32.from_address(managed).value = 4
    ok(cu.cuStreamSynchronize(stream))
    seen["written"] = ctypes.c_uint32.from_address(managed + 4).value
    ok(cu.cuMemFreeHost(pinned))
    seen["freed twice"] = name(cu.cuMemFreeHost(pinned))
    return seen


def peers() -> dict[str, Any]:
    """Another card's memory, and another process's."""
    seen: dict[str, Any] = {"reaches": ok(cu.cuDeviceCanAccessPeer(0, 1))}
    other = ok(cu.cuDevicePrimaryCtxRetain(1))
    seen["enabled"] = [name(cu.cuCtxEnablePeerAccess(other, 0)) for _ in range(2)]
    seen["disabled"] = [name(cu.cuCtxDisablePeerAccess(other)) for _ in range(2)]
    memory_handle = ok(cu.cuIpcGetMemHandle(ok(cu.cuMemAlloc(12 * MIB))))
    seen["own"] = name(cu.cuIpcOpenMemHandle(memory_handle, 1))
    text = ctypes.string_at(memory_handle.getPtr(), 64).hex()
    opened = subprocess.run([sys.executable, __file__, "opens", text], check=True, capture_output=True, text=True)
    return {**seen, **json.loads(opened.stdout)}


def opens() -> dict[str, Any]:
    handle = cu.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[2]), 64)
    before = used_mib()
    address = ok(cu.cuIpcOpenMemHandle(handle, 1))
    seen = {"the other's": before, "opened": used_mib(), "size": int(ok(cu.cuMemGetAddressRange(address))[1]) // MIB}
    ok(cu.cuIpcCloseMemHandle(address))
    return seen


def share() -> dict[str, Any]:
    """Says the milliseconds of kernels done so far: at first, and after a busy while for each line of stdin."""
    function, done = kernel("step_1ms"), 0
    sys.stdout.write("0\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            for _ in range(20):
                launch(function)
            ok(cu.cuCtxSynchronize())
            done += 20
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()
    return {}


def main() -> None:
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    plays: dict[str, Callable[[], dict[str, Any]]] = {
        play.__name__: play
        for play in (
            memory,
            pools,
            virtual_memory,
            arrays,
            graphs,
            captures,
            times,
            waits,
            contexts,
            green_contexts,
            host_memory,
            peers,
            opens,
            share,
        )
    }
    json.dump(plays[sys.argv[1]](), sys.stdout)


if __name__ == "__main__":
    main()
