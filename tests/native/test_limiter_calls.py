"""How many calls the driver gets for each launch under a limit: each takes time of the program's, and of the card's."""

from pathlib import Path

import pytest
from native.rankskit import calls_per_launch

ALONE, QUEUED = 6.05, {10: 4.0, 100: 6.5, 1000: 6.5}
"""The most calls for each launch that is waited for, and for each of a queue, by what its kernels take in us. Of the
former 0.05 are looks at kernels that took longer than those before.
"""
SECONDS, STEPS = 1.5, 6
"""For so long a program launches, and it waits so often: at 10 percent 50 kernels of 1 ms take half a second."""
TRIES = 4
"""A program that is kept from running begins another segment: on a busy machine a queue costs more."""


@pytest.mark.parametrize("core", [10, 50])
@pytest.mark.parametrize(("kernel_us", "depth"), [(100, 1), (1000, 1), (10, 50), (100, 50), (1000, 50)])
def test_a_launch_costs_few_calls_of_the_driver(
    tmp_path: Path, limiter_build: Path, core: int, kernel_us: int, depth: int
) -> None:
    """Each launch had 15 calls where it was waited for, and 5 to 13 in a queue."""
    most = ALONE if depth == 1 else QUEUED[kernel_us]
    seconds = max(SECONDS, STEPS * depth * kernel_us / 1e6 * 100 / core)
    seen: list[float] = []
    while len(seen) < TRIES and (not seen or seen[-1] > most):
        folder = tmp_path / str(len(seen))
        seen.append(
            calls_per_launch(folder, limiter_build, core=core, kernel_us=kernel_us, depth=depth, seconds=seconds)
        )
    assert seen[-1] <= most, seen
