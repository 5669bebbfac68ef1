"""Kernels of a fixed size, and what they take on this card where nothing holds them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.limiter.bench import Bench

SIZES_US = (100, 1000, 50_000)
QUEUED = 50
POINTS = 2.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of about `us` microseconds that takes `seconds` of this card.

    `alone` has the percent of the card that a program gets with it, by how many it queues: one that waits for each of
    its kernels leaves the card idle meanwhile, and no share makes it faster.
    """

    us: int
    rounds: int
    seconds: float
    alone: dict[int, float]

    @property
    def words(self) -> tuple[int, int]:
        """Return how programs/work.py is told of it: a simulated card goes by the first, a real one by the second."""
        return self.us * 1000, self.rounds

    def describe(self, depth: int) -> str:
        """Return it in words."""
        return f"kernels of {self.us / 1000:g} ms, {depth} queued"


def measure_kernels(bench: Bench) -> dict[int, Kernel]:
    """Measure all sizes natively, once a run."""
    if not bench.kernels:
        program = bench.start("work.py", "sizes", *SIZES_US, env=bench.native())
        bench.answer(program)
        found = bench.ask(program, "go")
        bench.end(program)
        for us in SIZES_US:
            one = found[str(us)]
            alone = {int(depth): float(got) for depth, got in one["alone"].items()}
            bench.kernels[us] = Kernel(us, one["rounds"], one["seconds"], alone)
            got = " and ".join(f"{share:.1f} % of the card {depth} queued" for depth, share in alone.items())
            bench.note(f"a kernel of {us / 1000:g} ms", one["seconds"] * 1000, "ms", why=f"alone {got}")
    return bench.kernels


def points_off(got: float, asked: float, able: float) -> float:
    """Return how far a share is from what was asked; below it only as far as the program could have had more."""
    return max(got - asked, min(asked, able) - got, 0.0)


def judge_seconds(
    bench: Bench, name: str, counts: list[int], kernel: Kernel, *, wanted: float, in_flight_s: float = 0
) -> None:
    """Judge the mean error of single seconds by the kernels of each.

    A second holds no part of a kernel, so half of one more is allowed. What counts is when a kernel was let in: where
    it may run `in_flight_s` later, that may be of another second.
    """
    off = [abs(100 * kernel.seconds * count - wanted) for count in counts]
    if off:
        most = POINTS + 50 * kernel.seconds + 100 * in_flight_s
        bench.note(name, statistics.fmean(off), "points off", most=most, why=f"at most {max(off):.1f}")
