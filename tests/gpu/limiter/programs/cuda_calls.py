"""What the programs share: NVIDIA's bindings (`cuda.bindings`), and kernels for real cards and simulated ones.

A simulated card takes any image and gives each function that is asked of it; `sim_spin` runs there for the nanoseconds
that it is given first. A real card runs the loop below for the rounds that it is given second: work of a fixed size. A
kernel that watches a clock would not be that. While another process has the card its clock goes on, so it would end
with less done the more others run.
"""
# ruff: noqa: ANN401 - the bindings are untyped

from __future__ import annotations

import json
import sys
from ctypes import c_int64
from typing import Any

from cuda.bindings import driver as cu

MIB = 1 << 20
SUCCESS = cu.CUresult.CUDA_SUCCESS
TARGETS = (("6.0", "sm_60"), ("6.4", "sm_75"), ("7.8", "sm_90"))
"""Versions of PTX and the cards for which it is written: newer drivers may take the older ones no more."""
KERNELS = """
.visible .entry nothing() { ret; }
.visible .entry sim_spin(.param .u64 ns, .param .u64 rounds, .param .u64 out)
{
    .reg .pred %again;
    .reg .u64 %left, %word, %at;
    ld.param.u64 %left, [rounds];
    ld.param.u64 %at, [out];
    mov.u64 %word, %left;
more:
    mad.lo.u64 %word, %word, 6364136223846793005, 1442695040888963407;
    sub.u64 %left, %left, 1;
    setp.gt.s64 %again, %left, 0;
    @%again bra more;
    cvta.to.global.u64 %at, %at;
    st.global.u64 [%at], %word;
    ret;
}
.visible .entry wait_flag(.param .u64 flag, .param .u64 most_ns)
{
    .reg .pred %done;
    .reg .u32 %word;
    .reg .u64 %at, %began, %now, %most;
    ld.param.u64 %at, [flag];
    ld.param.u64 %most, [most_ns];
    cvta.to.global.u64 %at, %at;
    mov.u64 %began, %globaltimer;
again:
    ld.volatile.global.u32 %word, [%at];
    setp.ne.u32 %done, %word, 0;
    @%done bra out;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %done, %now, %most;
    @%done bra again;
    mov.u32 %word, 1;
    st.volatile.global.u32 [%at+4], %word;
out:
    ret;
}
.visible .entry set_flag(.param .u64 flag)
{
    .reg .u32 %one;
    .reg .u64 %at;
    ld.param.u64 %at, [flag];
    cvta.to.global.u64 %at, %at;
    mov.u32 %one, 1;
    st.volatile.global.u32 [%at], %one;
    ret;
}
.visible .entry local_memory(.param .u64 out, .param .u64 index)
{
    .local .align 8 .b8 frame[512];
    .reg .u64 %at, %place, %base, %first, %word;
    ld.param.u64 %at, [out];
    ld.param.u64 %place, [index];
    mov.u64 %base, frame;
    add.u64 %first, %base, %place;
    st.local.u64 [%first], %place;
    shl.b64 %place, %place, 1;
    add.u64 %first, %base, %place;
    ld.local.u64 %word, [%first];
    cvta.to.global.u64 %at, %at;
    st.global.u64 [%at], %word;
    ret;
}
"""


class RefusedError(Exception):
    """The driver refused; the text is its code."""


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call gave besides its status; raise `RefusedError` where that is no success."""
    if answer[0] != SUCCESS:
        raise RefusedError(answer[0].name.removeprefix("CUDA_"))
    return answer[1] if len(answer) == 2 else answer[1:]


def start() -> None:
    """Use the first card by its primary context."""
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))


def image(text: str, target: tuple[str, str]) -> bytes:
    """Return PTX for a card."""
    version, card = target
    return f".version {version}\n.target {card}\n.address_size 64\n{text}".encode() + b"\0"


def load(text: str) -> Any:
    """Load PTX as a module, for the first kind of card that the driver takes."""
    for target in TARGETS:
        status, module = cu.cuModuleLoadData(image(text, target))
        if status not in {cu.CUresult.CUDA_ERROR_INVALID_PTX, cu.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION}:
            break
    return ok((status, module))


def function(module: Any, name: str) -> Any:
    """Return a module's kernel."""
    return ok(cu.cuModuleGetFunction(module, name.encode()))


def launch(kernel: Any, *values: int, stream: Any = 0) -> None:
    """Launch a kernel of one thread with arguments of 64 bits."""
    given = (values, (c_int64,) * len(values)) if values else 0
    ok(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, given, 0))


def say(**found: Any) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def heard() -> str:
    """Return the next line of standard input; end the program where there is none."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    return line.strip()
