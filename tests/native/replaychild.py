"""A client that has what CUDA's runtime asked the driver for: `replaychild.py FILE`, with a request in each line.

It asks for each once more, in the same order, and calls nothing but what it was given. Prints as JSON the MiB that it
got by each way until it was refused, how each ended, the card's size as it is told, and the percent of the card's time
that its kernels took.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

MIB = 1 << 20
PIECE_MIB = 64
KERNELS, KERNEL_NS = 20, 5_000_000


def answered(cuda: ctypes.CDLL, path: Path) -> dict[str, int]:
    """Return the address that each name led to; of several requests for a name the first counts."""
    found: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, version, flags = line.split()
        address, status = ctypes.c_void_p(), ctypes.c_int()
        words = (name.encode(), ctypes.byref(address), int(version), ctypes.c_uint64(int(flags)), ctypes.byref(status))
        if cuda.cuGetProcAddress_v2(*words) == 0 and address.value is not None:
            found.setdefault(name, address.value)
    return found


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    addresses = answered(cuda, Path(sys.argv[1]))
    form = ctypes.CFUNCTYPE(ctypes.c_int)

    def call(name: str, *words: object) -> int:
        return int(ctypes.cast(addresses[name], form)(*words))

    def must(name: str, *words: object) -> None:
        assert call(name, *words) == 0, name

    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must("cuInit", 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    must("cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    must("cuMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    said: dict[str, object] = {"total_mib": total.value // MIB}
    said["cuMemAlloc"] = until_refused(partial(call, "cuMemAlloc"), must)
    said["cuMemAllocAsync"] = until_refused(partial(call, "cuMemAllocAsync"), must, None)
    said["cuMemAllocManaged"] = until_refused(partial(call, "cuMemAllocManaged"), must, 1)
    must("cuModuleLoadData", ctypes.byref(module), b"image")
    must("cuModuleGetFunction", ctypes.byref(function), module, b"sim_spin")
    words = (ctypes.c_void_p * 1)(ctypes.addressof(ns := ctypes.c_uint64(KERNEL_NS)))
    began = time.monotonic_ns()
    for _ in range(KERNELS):
        must("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, words, None)
        must("cuStreamSynchronize", None)
    ns.value = 1
    must("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, words, None)  # is let in when all has been paid for
    said["percent"] = 100 * KERNELS * KERNEL_NS / (time.monotonic_ns() - began)
    print(json.dumps(said))  # noqa: T201


def until_refused(take: Callable[..., int], must: Callable[..., None], *tail: object) -> tuple[int, int]:
    """Take pieces until one is refused, and give them back; return the MiB and the refusal."""
    taken, status = list[ctypes.c_uint64](), 0
    while status == 0:
        taken.append(ctypes.c_uint64())
        status = take(ctypes.byref(taken[-1]), PIECE_MIB * MIB, *tail)
    for address in taken[:-1]:
        must("cuMemFree", address)
    return PIECE_MIB * (len(taken) - 1), status


if __name__ == "__main__":
    main()
