"""Two containers whose kernels wait for each other, as those of a collective do, each on its own card."""

import struct
import time
from pathlib import Path

import pytest
from kits.reruns import StarvationError
from native.limiterkit import BUCKETS_AT, Container
from native.rankskit import lay_out_ranks, rank_settings, start_rank

KERNEL_US = 1000
SECONDS = 6
LEAST = 0.4
"""The part of the smaller share's kernels that both get beside other tests."""
LEAST_ALONE = {(30, 30): (0.8, 0.5), (10, 60): (0.8, 0.5), (10, 10): (0.6, 0.5)}
"""The same of a machine of their own, by their shares: one at a time, and in queues. At 10 percent 0.1 ms by which one
comes later than the other costs as much as a tenth of its share's time."""
DEPTHS = (1, 50)
TRIES = 4


def _run(folder: Path, containers: list[Container], program: Path, depth: int) -> list[list[str]]:
    """Run both ranks side by side; the lines of each. They are killed: the last kernel of one waits for the other."""
    settings = rank_settings(folder, kernel_us=KERNEL_US)
    ranks = [
        start_rank(container, program, settings, rank=rank, seconds=SECONDS * 10, depth=depth)
        for rank, container in enumerate(containers)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
    time.sleep(SECONDS)
    for rank in ranks:
        rank.kill()
    return [rank.communicate()[0].splitlines() for rank in ranks]


def _owed_s(container: Container) -> float:
    """Return for how long what is owed for the first card lasts."""
    (word,) = struct.unpack_from("=Q", container.usage.read_bytes(), BUCKETS_AT)
    return float((word >> 7) * 8 - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / 1e9


def _judge(folder: Path, build: Path, cores: tuple[int, int], depth: int, *, least: float) -> None:
    """Hold both to the part of the smaller share that they must get, and what is owed afterwards to a second."""
    fair = min(cores) / 100 * SECONDS * 1e6 / KERNEL_US
    seen = []
    for number in range(TRIES):
        own = folder / str(number)
        containers, program = lay_out_ranks(own, build, cores)
        lines = _run(own, containers, program, depth)
        owed = max(map(_owed_s, containers))
        seen.append((min(len(of_rank) for of_rank in lines) * depth / fair, owed))
        if seen[-1][0] >= least and owed <= 1:
            return
    if any(got >= least for got, _ in seen) or all(owed > 1 for _, owed in seen):
        pytest.fail(f"more than 1 s owed: {seen}")
    raise StarvationError(f"less than {least} of what is fair: {seen}")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("cores", LEAST_ALONE)
def test_two_that_wait_for_each_other_keep_going(
    tmp_path: Path, limiter_build: Path, cores: tuple[int, int], depth: int
) -> None:
    """Each step took longer than the one before: 8 in 39 seconds, of 300 in each. And seconds were owed afterwards."""
    _judge(tmp_path, limiter_build, cores, depth, least=LEAST)


@pytest.mark.shares
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("cores", LEAST_ALONE)
def test_two_that_wait_for_each_other_get_the_smaller_share(
    tmp_path: Path, limiter_build: Path, cores: tuple[int, int], depth: int
) -> None:
    _judge(tmp_path, limiter_build, cores, depth, least=LEAST_ALONE[cores][DEPTHS.index(depth)])
