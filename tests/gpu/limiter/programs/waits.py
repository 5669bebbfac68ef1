"""A program in the container: work of one stream waits for a launch of another, which the limiter must not keep back.

It prints a line when its context is there, and begins at the next line of its standard input: `waits.py spins ROUNDS`
has a kernel that spins until another stream's kernel writes a word; `waits.py values ROUNDS` a stream that waits for
the word. A kernel gives up after some seconds and says so, for one that spins for ever would hold the card.
"""

from __future__ import annotations

import ctypes
import sys
import time

from cuda.bindings import driver as cu
from gpu.limiter.programs.cuda_calls import KERNELS, RefusedError, function, heard, launch, load, ok, say, start

MOST_NS = 8_000_000_000
WORK_NS, WORK_ROUNDS = 2_000_000, 100_000


def main(way: str, rounds: int) -> None:
    """Play so many rounds; say how long they took, and in how many a kernel gave up."""
    start()
    module = load(KERNELS)
    wait, write, work = (function(module, name) for name in ("wait_flag", "set_flag", "sim_spin"))
    one, other = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    at, out = int(ok(cu.cuMemAlloc(4096))), int(ok(cu.cuMemAlloc(4096)))
    gave_up, word = 0, (ctypes.c_uint32 * 2)()
    launch(write, at)
    launch(wait, at, MOST_NS)
    launch(work, WORK_NS, 1, out)
    ok(cu.cuCtxSynchronize())  # now all code is there: a driver that loads it late may wait for what is running
    say(ready=1)
    heard()
    began = time.monotonic()
    for _ in range(rounds):
        ok(cu.cuMemsetD8(at, 0, 8))
        ok(cu.cuCtxSynchronize())
        if way == "spins":
            launch(wait, at, MOST_NS, stream=one)
        else:
            ok(cu.cuStreamWaitValue32(one, at, 1, 1))
        launch(work, WORK_NS, WORK_ROUNDS, out, stream=one)
        launch(work, WORK_NS, WORK_ROUNDS, out, stream=other)
        if way == "spins":
            launch(write, at, stream=other)
        else:
            ok(cu.cuStreamWriteValue32(other, at, 1, 0))
        ok(cu.cuCtxSynchronize())
        ok(cu.cuMemcpyDtoH(ctypes.addressof(word), at, 8))
        gave_up += word[1]
    say(seconds=time.monotonic() - began, gave_up=gave_up)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except RefusedError as refused:
        say(refused=str(refused))
