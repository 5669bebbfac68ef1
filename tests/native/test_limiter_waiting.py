"""Two containers whose kernels wait for each other, as those of a collective do, each on its own card."""

import struct
import subprocess
import time
from pathlib import Path

import pytest
from kits.reruns import StarvationError
from native.limiterkit import BUCKETS_AT, NULL_CARD, Container, compile_program, make_container

CARDS = (NULL_CARD, "GPU-cdcdcdcd-cdcd-cdcd-cdcd-cdcdcdcdcdcd")
"""The cards of plugin/limiter/tests/ranksdriver.c."""
KERNEL_US = 1000
SECONDS = 6
LEAST = 0.4
"""The part of the smaller share's kernels that both get beside other tests."""
LEAST_ALONE = {(30, 30): (0.8, 0.5), (10, 60): (0.8, 0.5), (10, 10): (0.6, 0.5)}
"""The same of a machine of their own, by their shares: one at a time, and in queues. At 10 percent 0.1 ms by which one
comes later than the other costs as much as a tenth of its share's time."""
DEPTHS = (1, 50)
TRIES = 4
RANKS_BYTES = 2 * 8 * (1 << 20) + 16


def _lay_out(folder: Path, build: Path, cores: tuple[int, int]) -> tuple[list[Container], Path]:
    driver = folder / "driver"
    driver.mkdir(parents=True)
    compile_program(driver / "libcuda.so.1", build, ["tests/ranksdriver.c"], "-O2", "-shared", "-fPIC")
    program = compile_program(folder / "ranks", build, ["tests/ranks.c"], "-O2")
    containers = [make_container(folder / f"container{rank}", build, driver) for rank in range(len(cores))]
    for container, card, core in zip(containers, CARDS, cores, strict=True):
        container.limit((card, 1024), core=core)
    return containers, program


def _run(folder: Path, containers: list[Container], program: Path, depth: int) -> list[list[str]]:
    """Run both ranks side by side; the lines of each. They are killed: the last kernel of one waits for the other."""
    meeting = folder / "meeting"
    meeting.unlink(missing_ok=True)
    with meeting.open("wb") as file:
        file.truncate(RANKS_BYTES)
    settings = {"RANKS": str(meeting), "KERNEL_US": str(KERNEL_US), "ALONE": "0"}
    ranks = [
        subprocess.Popen(
            [program, str(SECONDS * 10), str(depth)],
            env={**container.environment(), **settings, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
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
        containers, program = _lay_out(own, build, cores)
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
