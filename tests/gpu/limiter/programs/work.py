"""A program in the container, or without the limiter: runs kernels of a fixed size and says as JSON what it got.

It prints a line when its context is there, and begins at the next line of its standard input.

- `work.py sizes US…`: the rounds and the device seconds of kernels of so many microseconds, and the percent of the card
  that a program gets which nothing holds, one kernel at a time and 50 queued.
- `work.py fixed NS ROUNDS COUNT DEPTH SPEND`: so many kernels, DEPTH of them queued before each wait. First it uses up
  what its share has saved by SPEND kernels, prints a second line, and waits for one. The clock runs from one kernel of
  nothing to another: each is let in when nothing is owed, so the time between is what the work costs at its share.
- `work.py timed NS ROUNDS DEPTH SETTLE_S SECONDS`: kernels for so long, beside others; what is let in after SETTLE_S.
- `work.py follow NS ROUNDS DEPTH WINDOW_S`: the kernels of each window, until it is killed.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from cuda.bindings import driver as cu
from gpu.limiter.programs.cuda_calls import KERNELS, function, heard, launch, load, ok, say, start

WARM_S, BATCH_S = 0.3, 0.3
BATCHES = 3
MOST_QUEUED = 500
DEPTHS = (1, 50)
TRIAL_NS, TRIAL_ROUNDS = 1_000_000, 50_000


class Spin:
    """The kernel that takes time."""

    def __init__(self) -> None:
        start()
        self.kernel, self.out = function(load(KERNELS), "sim_spin"), int(ok(cu.cuMemAlloc(4096)))
        self.run(TRIAL_NS, 1)
        ok(cu.cuCtxSynchronize())

    def run(self, ns: int, rounds: int) -> None:
        """Launch it: a simulated card takes so many ns, a real one so many rounds."""
        launch(self.kernel, ns, rounds, self.out)

    def several(self, ns: int, rounds: int, *, count: int, depth: int) -> list[float]:
        """Launch it so often, with a wait after each `depth`; return when each was let in."""
        admitted = []
        for at in range(1, count + 1):
            self.run(ns, rounds)
            admitted.append(time.monotonic())
            if at % depth == 0:
                ok(cu.cuCtxSynchronize())
        ok(cu.cuCtxSynchronize())
        return admitted

    def owed_nothing(self) -> float:
        """Return the time at which a kernel of nothing was let in and is over."""
        self.run(1000, 1)
        ok(cu.cuCtxSynchronize())
        return time.monotonic()

    def device_s(self, ns: int, rounds: int) -> float:
        """Return the seconds of the card that one takes, by events around many: no gap of the host is in it."""
        count = max(4, min(MOST_QUEUED, int(BATCH_S * 1e9 / ns)))
        found = []
        for _ in range(BATCHES):
            first, last = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
            ok(cu.cuEventRecord(first, 0))
            for _ in range(count):
                self.run(ns, rounds)
            ok(cu.cuEventRecord(last, 0))
            ok(cu.cuEventSynchronize(last))
            found.append(float(ok(cu.cuEventElapsedTime(first, last))) / 1000 / count)
        return statistics.median(found)


def sizes(spin: Spin, wanted_us: list[int]) -> dict[str, Any]:
    """Return for each kernel its rounds, its seconds, and what nothing but the host keeps from it."""
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        spin.several(TRIAL_NS, TRIAL_ROUNDS, count=20, depth=20)
    round_s = spin.device_s(TRIAL_NS, TRIAL_ROUNDS) / TRIAL_ROUNDS
    found = {}
    for us in wanted_us:
        rounds = max(1, round(us / 1e6 / round_s))
        seconds = spin.device_s(us * 1000, rounds)
        count, alone = max(4, int(BATCH_S / seconds)), {}
        for depth in DEPTHS:
            began = spin.owed_nothing()
            spin.several(us * 1000, rounds, count=count, depth=depth)
            alone[depth] = 100 * count * seconds / (time.monotonic() - began)
        found[str(us)] = {"rounds": rounds, "seconds": seconds, "alone": alone}
    return found


def fixed(spin: Spin, size: tuple[int, int], *, count: int, depth: int, spend: int) -> dict[str, Any]:
    """Return between which times the work was done, and how many kernels were let in in each whole second."""
    spin.several(*size, count=spend, depth=depth)
    say(spent=spend)
    heard()
    began = spin.owed_nothing()
    admitted = spin.several(*size, count=count, depth=depth)
    ended = spin.owed_nothing()
    return {"began": began, "ended": ended, "each_second": each_second(admitted, began, ended)}


def each_second(admitted: list[float], since: float, until: float) -> list[int]:
    """Return how many were let in in each whole second."""
    counts = [0] * int(until - since)
    for at in admitted:
        if at - since < len(counts):
            counts[int(at - since)] += 1
    return counts


def timed(spin: Spin, size: tuple[int, int], *, depth: int, settle_s: float, seconds: float) -> dict[str, Any]:
    """Return when kernels were let in: the first and the last after SETTLE_S, how many, how many in each second."""
    since = time.monotonic() + settle_s
    until, admitted, now = since + seconds, [], 0.0
    while now < until:
        for _ in range(depth):
            spin.run(*size)
            now = time.monotonic()
            if since <= now < until:
                admitted.append(now)
            if now >= until:
                break
        ok(cu.cuCtxSynchronize())
    seen = each_second(admitted, since, until)
    ends = (admitted[0], admitted[-1]) if admitted else (since, until)
    return {"first": ends[0], "last": ends[1], "count": len(admitted), "each_second": seen}


def follow(spin: Spin, size: tuple[int, int], *, depth: int, window_s: float) -> None:
    """Say of each window what `timed` does."""
    while True:
        say(**timed(spin, size, depth=depth, settle_s=0, seconds=window_s))


def main(words: list[str]) -> None:
    """Run what the words ask for."""
    spin = Spin()
    say(ready=1)
    heard()
    match words:
        case ["sizes", *wanted]:
            say(**sizes(spin, [int(one) for one in wanted]))
        case ["fixed", ns, rounds, count, depth, spend]:
            say(**fixed(spin, (int(ns), int(rounds)), count=int(count), depth=int(depth), spend=int(spend)))
        case ["timed", ns, rounds, depth, settle_s, seconds]:
            size = (int(ns), int(rounds))
            say(**timed(spin, size, depth=int(depth), settle_s=float(settle_s), seconds=float(seconds)))
        case ["follow", ns, rounds, depth, window_s]:
            follow(spin, (int(ns), int(rounds)), depth=int(depth), window_s=float(window_s))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
