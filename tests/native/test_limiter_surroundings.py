"""A process that sees another root folder, mounts, clocks or processes than its container: it is held as before."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, Container, compile_program, make_null_container

from edgegpu_plugin.containers.container_folder import CardLimits, limits_text
from edgegpu_plugin.containers.held.ended_slots import free_ended_slots

LIMIT_MIB, CONTEXT_MIB, HELD_MIB = 64, 4, 50
KERNEL_MS, CORE = 30, 10
GIVEN, REFUSED = "0", "2"
MORE = limits_text({NULL_CARD: CardLimits(1 << 40)})
"""The limits that a container would like to have."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    made = make_null_container(tmp_path, limiter_build, f"-DKERNEL_MS={KERNEL_MS}", objects=True)
    made.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def program(tmp_path: Path, limiter_build: Path) -> Path:
    return compile_program(tmp_path / "surroundings", limiter_build, ["tests/surroundings.c"])


Run = Callable[..., list[str]]


@pytest.fixture
def run(container: Container, program: Path) -> Run:
    """Return a function that runs the program's steps, behind the words of another program that runs it."""

    def call(*steps: str, by: tuple[str, ...] = ()) -> list[str]:
        return container.run(*by, program, *steps).split()

    return call


@contextlib.contextmanager
def holding(container: Container, program: Path, *by: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process of the container with memory; it ends at a line."""
    command: list[str | Path] = [*by, program, "start", f"alloc={HELD_MIB}", "hold"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=container.environment(), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline().strip() for _ in range(2)] == ["1", GIVEN]
            yield process
        finally:
            if by:  # a kill would end a program that forks, and leave its child alive for a moment
                process.communicate("\n", timeout=20)
            else:
                process.kill()


def own_root(container: Container, own_disk: Path) -> Path:
    """Make a root folder in which the limiter finds another limits file, in another file system."""
    root = own_disk / "root"
    (root / container.folder.relative_to("/")).mkdir(parents=True)
    (root / container.folder.relative_to("/") / "limits").write_text(MORE)
    return root


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in a file system that is not the container's."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "own", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("place", ["another disk", "the same"])
def test_limits_of_its_own_making_in_another_root_are_none(
    container: Container, run: Run, tmp_path: Path, own_disk: Path, place: str
) -> None:
    """A container may be able to write to the file system that its folder lies in, and makes another folder there."""
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB, core=50)
    root = own_root(container, own_disk if place == "another disk" else tmp_path)
    told = run("start", "alloc=10", f"chroot={root}", "wait=400", "alloc=1", "launch=4")
    assert told[:-1] == ["1", GIVEN, REFUSED]
    assert int(told[-1]) > 2 * 4 * KERNEL_MS * 2  # nobody knows its share: the least that there is


BY_MOUNTS = ("unshare", "--mount", "--propagation", "private")


@pytest.mark.parametrize("kind", ["own", "usage"])
def test_what_is_laid_over_the_limits_is_none(container: Container, run: Run, own_disk: Path, kind: str) -> None:
    """A file of its own, or the one beside the limits that it may write to."""
    own = own_disk / "limits"
    own.write_text(MORE)
    laid = container.usage if kind == "usage" else own
    steps = ["start", f"over={laid}:{container.folder / 'limits'}"]
    assert run(*steps, "wait=400", "alloc=1", by=BY_MOUNTS) == ["1", REFUSED]
    assert run(*reversed(steps), "alloc=1", by=BY_MOUNTS) == ["1", REFUSED]  # before the first call


def test_limits_that_were_replaced_are_none_wherever_they_are_kept(
    container: Container, run: Run, own_disk: Path
) -> None:
    """A mount keeps a file that the plugin has replaced; it stands where the limits are in another root folder."""
    container.write_limits(MORE)
    root = own_root(container, own_disk)
    kept = root / container.folder.relative_to("/") / "limits"
    subprocess.run(["mount", "--bind", container.folder / "limits", kept], check=True)
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    assert kept.read_text() == MORE
    assert run("start", f"chroot={root}", "wait=400", "alloc=1") == ["1", REFUSED]
    subprocess.run(["umount", kept], check=True)


@pytest.mark.parametrize("by", [(), ("unshare", "--pid", "--fork")], ids=["shared", "its own"])
def test_where_proc_shows_other_processes_a_living_one_counts_on(
    container: Container, program: Path, run: Run, by: tuple[str, ...]
) -> None:
    """In a PID namespace that has no /proc of its own the numbers there are of other processes."""
    living, asking = f"{program} start alloc={HELD_MIB} wait=60000", f"{program} start alloc={HELD_MIB}"
    script = f"{living} & sleep 0.5; {asking}; kill $!"
    told = container.run(*by, "sh", "-c", script).split()
    assert sorted(told) == sorted(["1", GIVEN, "1", REFUSED])
    assert run("start", f"alloc={HELD_MIB}")[0] == "1"
    free_ended_slots([container.usage], Path("/proc"))
    assert run("start", f"alloc={HELD_MIB}") == ["1", GIVEN]


@pytest.mark.parametrize("clock", ["--monotonic", "--boottime"])
def test_a_clock_of_its_own_frees_nobody_elses_memory(
    container: Container, program: Path, run: Run, clock: str
) -> None:
    ahead = ("unshare", "--time", clock, "100000", "--fork")
    with holding(container, program):
        assert run("start", "alloc=10", f"alloc={HELD_MIB}", by=ahead) == ["1", REFUSED, REFUSED]
    assert run("start", f"alloc={HELD_MIB}") == ["1", GIVEN]
    with holding(container, program, *ahead):
        assert run("start", f"alloc={HELD_MIB}") == ["1", REFUSED]
    assert run("start", f"alloc={HELD_MIB}") == ["1", GIVEN]


def test_a_clock_of_its_own_pays_no_debt_and_owes_none_of_later(container: Container, run: Run) -> None:
    """Four kernels of 30 ms at 10 percent: the container owes 1 200 ms, of which 1 100 are left to the next process."""
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB, core=CORE)
    debt_ms = KERNEL_MS * 100 // CORE
    for ahead in ("0", "5000", "100000", "50", "0"):
        started, took_ms = run("start", "launch=4", by=("unshare", "--time", "--monotonic", ahead, "--fork"))
        assert started == "1"
        assert 3 * debt_ms - 100 < int(took_ms) < 20 * debt_ms, ahead


def test_what_it_had_before_an_exec_counts_for_nobody(container: Container, program: Path, run: Run) -> None:
    """From outside the two slots of one process look alike; with three in use it does not look at those of others."""
    pipe = subprocess.PIPE
    ways = [["start", "hold"], ["start", "hold"], ["start", "alloc=40", "exec", "start", "hold"]]
    with contextlib.ExitStack() as stack:
        for steps in ways:
            process = subprocess.Popen(
                [program, *steps], env=container.environment(), stdin=pipe, stdout=pipe, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            wanted = ["1"] if len(steps) == 2 else ["1", GIVEN, "1"]
            assert [process.stdout.readline().strip() for _ in wanted] == wanted
        assert container.counted() == 3 * CONTEXT_MIB * MIB
        assert run("start", f"alloc={LIMIT_MIB - 4 * CONTEXT_MIB}") == ["1", GIVEN]
