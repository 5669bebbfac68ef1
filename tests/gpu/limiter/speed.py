"""A program in the container, or without the limiter: says as JSON how long calls of the driver take.

`python speed.py first | calls | work KERNEL_US COUNT DEPTH`. It needs NVIDIA's bindings (`cuda.bindings`) alone.

- `first`: seconds from nothing to the first context.
- `calls`: nanoseconds a call: an empty launch, a pair of allocation and free, the same in stream order; the best of
  several rounds.
- `work`: seconds that COUNT kernels of so many clocks take, DEPTH of them queued before each wait. `spin` runs for the
  clocks that it is given, so the same work takes the same time of the card with and without a limit.
"""
# ruff: noqa: ANN401 - the bindings are untyped

from __future__ import annotations

import json
import sys
import time
from ctypes import c_int64
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver as cu

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, CALLS = 30, 1000
PTX = b"""
.version 7.0
.target sm_60
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 clocks)
{
    .reg .pred %p; .reg .u64 %began, %now, %want;
    ld.param.u64 %want, [clocks];
    mov.u64 %began, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %p, %now, %want;
    @%p bra again;
    ret;
}
\0"""


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call gave besides its status, which has to be success."""
    if answer[0] != cu.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"the driver answers {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


def start() -> None:
    """Use the first card by its primary context."""
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))


def first() -> dict[str, float]:
    """Return the seconds of the first calls."""
    began = time.perf_counter()
    start()
    return {"first_call_s": time.perf_counter() - began}


def _best_ns(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter_ns() - began) / CALLS)
        ok(cu.cuCtxSynchronize())
    return best


def calls() -> dict[str, float]:
    """Return the nanoseconds of calls, the interpreter's part included: compare them only with each other."""
    start()
    nothing = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(PTX)), b"nothing"))
    return {
        "launch_ns": _best_ns(lambda: cu.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)),
        "malloc_free_ns": _best_ns(lambda: cu.cuMemFree(cu.cuMemAlloc(1 << 20)[1])),
        "async_pair_ns": _best_ns(lambda: cu.cuMemFreeAsync(cu.cuMemAllocAsync(1 << 20, 0)[1], 0)),
    }


def work(kernel_us: int, count: int, depth: int) -> dict[str, float]:
    """Return the seconds of so many kernels, each on its own clocks."""
    start()
    spin = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(PTX)), b"spin"))
    rate = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
    clocks = int(kernel_us * ok(cu.cuDeviceGetAttribute(rate, 0)) / 1000)
    given = ((clocks,), (c_int64,))
    ok(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, given, 0))
    ok(cu.cuCtxSynchronize())
    began = time.perf_counter()
    for at in range(1, count + 1):
        ok(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, given, 0))
        if at % depth == 0:
            ok(cu.cuCtxSynchronize())
    ok(cu.cuCtxSynchronize())
    return {"work_s": time.perf_counter() - began}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["first"]:
            found = first()
        case ["calls"]:
            found = calls()
        case ["work", kernel_us, count, depth]:
            found = work(int(kernel_us), int(count), int(depth))
        case _:
            raise SystemExit(__doc__)
    sys.stdout.write(json.dumps(found) + "\n")
