"""Programs of plugin/limiter/tests/ranks.c on its driver, which counts the calls that it gets."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from native.limiterkit import NULL_CARD, Container, compile_program, make_container

CARDS = (NULL_CARD, "GPU-cdcdcdcd-cdcd-cdcd-cdcd-cdcdcdcdcdcd")
"""The cards of plugin/limiter/tests/ranksdriver.c: each rank's."""
_MEETING_BYTES = 2 * 8 * (1 << 20) + 16


def lay_out_ranks(folder: Path, build: Path, cores: tuple[int, ...]) -> tuple[list[Container], Path]:
    """Return a container for each rank, with so many percent of its card, and the program."""
    driver = folder / "driver"
    driver.mkdir(parents=True)
    compile_program(driver / "libcuda.so.1", build, ["tests/ranksdriver.c"], "-O2", "-shared", "-fPIC")
    program = compile_program(folder / "ranks", build, ["tests/ranks.c"], "-O2")
    containers = [make_container(folder / f"container{rank}", build, driver) for rank in range(len(cores))]
    for container, card, core in zip(containers, CARDS, cores, strict=False):
        container.limit((card, 1024), core=core)
    return containers, program


def rank_settings(folder: Path, *, kernel_us: int, alone: bool = False) -> dict[str, str]:
    """Return what all ranks of a run have in their environment; the file in which they meet is made anew."""
    meeting = folder / "meeting"
    meeting.unlink(missing_ok=True)
    with meeting.open("wb") as file:
        file.truncate(_MEETING_BYTES)
    return {"RANKS": str(meeting), "KERNEL_US": str(kernel_us), "ALONE": str(int(alone))}


def start_rank(
    container: Container, program: Path, settings: Mapping[str, str], *, rank: int, seconds: float, depth: int
) -> subprocess.Popen[str]:
    """Start a rank, which prints for each step how many kernels it has launched, and the driver's calls for each."""
    return subprocess.Popen(
        [program, str(seconds), str(depth)],
        env={**container.environment(), **settings, "RANK": str(rank)},
        stdout=subprocess.PIPE,
        text=True,
    )


def calls_per_launch(folder: Path, build: Path, *, core: int, kernel_us: int, depth: int, seconds: float) -> float:
    """Return how many calls of the limiter's own the driver gets for each launch: those of its first steps apart.

    Args:
        folder: gets the container's folder, and must not exist.
        build: the folder of the built limiter.
        core: percent of the card's time.
        kernel_us: what each kernel takes.
        depth: kernels that are launched before the program waits for them.
        seconds: for so long it launches.
    """
    (container,), program = lay_out_ranks(folder, build, (core,))
    settings = rank_settings(folder, kernel_us=kernel_us, alone=True)
    text = start_rank(container, program, settings, rank=0, seconds=seconds, depth=depth).communicate(timeout=60)[0]
    steps = [(int(launches), float(calls)) for launches, calls in map(str.split, text.splitlines())]
    (first, before), (last, all_calls) = steps[len(steps) // 4], steps[-1]
    return (last * all_calls - first * before) / (last - first)
