"""The limiter's shares of a card's time, in front of the simulated driver: work that was done against native's."""

import itertools
import os
import platform
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from native.limiterkit import BUCKETS_AT, SOURCES, Container, compile_program, make_container
from native.shareskit import (
    AT_LOAD,
    CASES,
    DEPTHS,
    MS,
    PAIRS,
    POINTS,
    TRIES,
    US,
    Table,
    above_in_a_second,
    cells_of_the_day,
    judge,
    reaches,
)

from edgegpu_sim.driver import SimCard, SimDriver, make_card

SECONDS = {100 * US: 2, MS: 2, 50 * MS: 10}
"""For so long kernels are measured, by their ns."""
STRETCHES = 5
WAYS_TO_LAUNCH = ["none", "other", "priority", "green", "in-green", "legacy", "per-thread"]
"""With no context current or another one; in streams of two priorities; in a green context's stream, from outside and
from inside; in the default stream, the legacy one and the thread's (plugin/limiter/tests/compute.c).
"""

Make = Callable[..., Container]


@pytest.fixture(scope="module")
def card() -> SimCard:
    return make_card(0, "Tesla T4", 8192)


@pytest.fixture
def driver(tmp_path: Path, card: SimCard, simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path / "box", [card], build=simdriver_build)


@pytest.fixture(scope="module")
def compute(limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("compute") / "compute", limiter_build, ["tests/compute.c"])


@pytest.fixture
def make(tmp_path: Path, limiter_build: Path, driver: SimDriver, card: SimCard) -> Make:
    """Lays out containers with so many percent of the card."""
    numbers = itertools.count()

    def container(core: int | None, policy: str = "strict") -> Container:
        made = make_container(tmp_path / f"container{next(numbers)}", limiter_build, driver.libraries)
        made.limit((card, 1024), core=core, policy=policy)
        return made

    return container


def _start(container: Container, *command: object) -> subprocess.Popen[str]:
    """Start a program, in a process group of its own."""
    words = [str(word) for word in command]
    return subprocess.Popen(words, env=container.environment(), stdout=subprocess.PIPE, text=True, process_group=0)


def _shares(compute: Path, containers: list[Container], *args: object) -> list[float]:
    """Run the same work in containers side by side; the percent of the card that each got."""
    running = [_start(container, compute, "share", *args) for container in containers]
    texts = [process.communicate(timeout=240)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [float(text) for text in texts]


@pytest.mark.parametrize(("core", "ns", "depth", "processes"), [(50, MS, 1, 1), (30, 100 * US, 50, 3), (70, MS, 1, 3)])
def test_a_share_is_what_was_given(make: Make, compute: Path, core: int, ns: int, depth: int, processes: int) -> None:
    container = make(core)
    judge(lambda: _shares(compute, [container], ns, depth, 0.6, processes), [core])


@pytest.mark.parametrize("way", WAYS_TO_LAUNCH)
def test_however_a_program_launches_it_is_held(make: Make, compute: Path, way: str) -> None:
    """Kernels of 5 ms: one that cannot be measured is charged for 1 ms, and one that nobody sees for nothing."""
    judge(lambda: [float(make(20).run(compute, way, str(5 * MS), "1", "1.5"))], [20])


def test_a_preloaded_library_tells_the_limiter_no_time(make: Make, compute: Path, tmp_path: Path) -> None:
    """To the limiter its clock goes ten times as fast, and its sleep is over at once."""
    liar = tmp_path / "liar.so"
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", liar, SOURCES / "tests/liar.c", "-ldl"], check=True)

    def measure() -> list[float]:
        container = make(20)
        lies = {"LD_PRELOAD": str(liar), "LIAR_LIMITER": str(container.libraries)}
        command: list[str | Path] = [compute, "share", str(MS), "1", "1", "1"]
        environment = {**container.environment(), **lies}
        return [float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)]

    judge(measure, [20])


@pytest.mark.shares
@pytest.mark.parametrize(("core", "ns", "depth", "processes"), cells_of_the_day(CASES))
def test_every_share(
    make: Make, compute: Path, shares_table: Table, *, core: int, ns: int, depth: int, processes: int
) -> None:
    def measure(limit: int | None) -> list[float]:
        return _shares(compute, [make(limit)], ns, depth, SECONDS[ns], processes)

    cell = {"core": core, "ns": ns, "depth": depth, "processes": processes}
    note = shares_table.note("share", cell, [core])
    judge(lambda: measure(core), [core], lack=POINTS, free=lambda: measure(None), note=note)


@pytest.mark.shares
@pytest.mark.parametrize(("way", "depth"), cells_of_the_day(list(itertools.product(WAYS_TO_LAUNCH, DEPTHS))))
def test_every_way_to_launch(make: Make, compute: Path, shares_table: Table, way: str, depth: int) -> None:
    core = 30
    note = shares_table.note("way", {"core": core, "ns": MS, "depth": depth, "way": way}, [core])
    judge(lambda: [float(make(core).run(compute, way, str(MS), str(depth), "2"))], [core], lack=POINTS, note=note)


def _seconds(compute: Path, container: Container, ns: int, depth: int, processes: int, *, count: int) -> list[float]:
    """Return the percent of the card that a program got in each second.

    A second ends where a kernel is let in, which is the first of the next one: so it has whole kernels, each of which
    has been paid for, and nothing lies between two. One of 50 ms is 5 points of a second, and at 10 percent there are
    two in one. Where three processes launch such kernels at once, the three are let in together, and a second is as
    long as it takes until they are again: up to 1.5 s at 10 percent.
    """
    with _start(container, compute, "follow", ns, 1.0, depth, processes) as process:
        assert process.stdout is not None
        found = [float(process.stdout.readline()) for _ in range(count)]
        process.kill()
    return found


@pytest.mark.parametrize(("core", "ns", "depth", "processes"), [(30, MS, 1, 1), (70, 50 * MS, 50, 3)])
def test_a_share_is_kept_in_each_second(
    make: Make, compute: Path, core: int, ns: int, depth: int, processes: int
) -> None:
    judge(
        lambda: _seconds(compute, make(core), ns, depth, processes, count=3),
        [core] * 3,
        is_above=lambda got: above_in_a_second(got, core),
    )


@pytest.mark.shares
@pytest.mark.parametrize(("core", "ns", "depth", "processes"), cells_of_the_day(CASES))
def test_every_share_is_kept_in_each_second(
    make: Make, compute: Path, shares_table: Table, *, core: int, ns: int, depth: int, processes: int
) -> None:
    def free() -> list[float]:
        return _shares(compute, [make(None)], ns, depth, SECONDS[100 * US], processes) * STRETCHES

    cell = {"core": core, "ns": ns, "depth": depth, "processes": processes}
    judge(
        lambda: _seconds(compute, make(core), ns, depth, processes, count=STRETCHES),
        [core] * STRETCHES,
        apart=True,
        lack=POINTS,
        free=free,
        is_above=lambda seconds: above_in_a_second(seconds, core),
        note=shares_table.note("second", cell, [core] * STRETCHES),
    )


@contextmanager
def _interrupted(process: subprocess.Popen[str], draw: random.Random) -> Iterator[None]:
    """Keep a program from running for moments, as a machine does that has other work."""
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(draw.uniform(0.02, 0.3)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGSTOP)
                done.wait(draw.uniform(0.01, 0.1))
                os.killpg(process.pid, signal.SIGCONT)

    with ThreadPoolExecutor(1) as pool:
        interrupting = pool.submit(interrupt)
        yield
        done.set()
        interrupting.result()


@pytest.mark.parametrize(("core", "ns", "depth"), [(70, MS, 1), (50, 50 * MS, 50)])
def test_who_is_kept_waiting_at_times_gets_no_more_for_it(
    make: Make, compute: Path, core: int, ns: int, depth: int
) -> None:
    """On it rests that more than a share fails at once, on whatever machine (shareskit.judge)."""
    seed = random.randrange(2**32)
    process = _start(make(core), compute, "share", ns, depth, 2, 1)
    with _interrupted(process, random.Random(seed)):
        got = float(process.communicate(timeout=240)[0])
    assert 0 < got <= core + POINTS, (got, seed)


def test_a_second_has_no_more_than_what_the_one_before_lacked(make: Make, compute: Path) -> None:
    core, seed = 70, random.randrange(2**32)
    with _start(make(core), compute, "follow", MS, 1.0, 1) as process:
        assert process.stdout is not None
        with _interrupted(process, random.Random(seed)):
            got = [float(process.stdout.readline()) for _ in range(4)]
        process.kill()
    assert not above_in_a_second(got, core), (got, seed)


def test_two_containers_side_by_side(make: Make, compute: Path) -> None:
    containers = [make(30), make(60)]
    judge(lambda: _shares(compute, containers, MS, 1, 0.8, 1), [30, 60])


@pytest.mark.shares
@pytest.mark.parametrize(("pair", "depth"), cells_of_the_day(list(itertools.product(PAIRS, DEPTHS))))
def test_every_pair_of_containers(
    make: Make, compute: Path, shares_table: Table, pair: tuple[int, int], depth: int
) -> None:
    """Where a card is given away whole, turns of others lie between events: less is got, never more."""
    containers = [make(core) for core in pair]
    note = shares_table.note("pair", {"pair": pair, "ns": MS, "depth": depth}, pair)
    judge(lambda: _shares(compute, containers, MS, depth, 4, 1), pair, lack=None, least=0.75, note=note)


@pytest.mark.parametrize(("core", "policy"), [(None, "strict"), (30, "off"), (100, "strict")])
def test_without_a_limit_nothing_is_held(make: Make, compute: Path, core: int | None, policy: str) -> None:
    container = make(core, policy)
    reaches((_shares(compute, [container], MS, 50, 0.2, 1)[0] for _ in range(TRIES)), 60)


def test_elastic_is_held_to_what_is_guaranteed(make: Make, compute: Path) -> None:
    container = make(50, "elastic")
    judge(lambda: _shares(compute, [container], MS, 1, 0.4, 1), [50])


def test_a_card_of_which_nothing_is_known_gets_the_least(make: Make, compute: Path) -> None:
    container = make(50)
    container.write_limits("edgegpu-limits 1\n")
    assert _shares(compute, [container], 100 * US, 1, 0.4, 1)[0] < 1 + POINTS


def test_a_share_that_changes_is_followed(make: Make, compute: Path, card: SimCard) -> None:
    container = make(10)
    with _start(container, compute, "follow", MS, 0.25) as process:
        assert process.stdout is not None
        for core in (10, 80, 10):
            container.limit((card, 1024), core=core)
            reaches(map(float, itertools.islice(process.stdout, 20)), AT_LOAD * core, core + 2 * POINTS)
        process.kill()


def test_streams_that_wait_for_each_other_come_to_an_end(make: Make, compute: Path) -> None:
    make(10).run(compute, "values", "15")


def test_a_kernel_that_spins_gets_the_launch_it_waits_for(limiter_build: Path, tmp_path: Path) -> None:
    null, spin = tmp_path / "null", tmp_path / "spin"
    null.mkdir()
    compile_program(null / "libcuda.so.1", limiter_build, ["tests/nulldriver.c"], "-O2", "-shared", "-fPIC")
    compile_program(spin, limiter_build, ["tests/spin.c"])
    container = make_container(tmp_path / "spinning", limiter_build, null)
    container.write_limits(_null_limits(10))
    container.run(spin)


def _null_limits(core: int) -> str:
    uuid = "GPU-abababab-abab-abab-abab-abababababab"
    return f"edgegpu-limits 1\ncard {uuid} memory_bytes=1048576 core_percent={core} policy=strict\n"


def test_captures_are_left_alone_and_graphs_are_charged(make: Make, compute: Path) -> None:
    container = make(50)
    judge(lambda: [float(container.run(compute, "capture"))], [50])


def test_what_a_context_ran_when_it_ended_is_charged(make: Make, compute: Path) -> None:
    held_ms = float(make(10).run(compute, "destroy", str(20 * MS)))
    assert held_ms > 100


WAYS = ["event", "query", "flag", "destroyed", "memory", "contexts", "streams", "jump", "capture", "config"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="tests/hidden.c steps through its own code")
@pytest.mark.parametrize("way", WAYS)
def test_what_a_program_keeps_from_being_measured_is_charged(
    tmp_path: Path, limiter_build: Path, simdriver_build: Path, way: str
) -> None:
    """Kernels of 200 ms: they got 33 to 100 percent of the card, one way or another."""
    large = make_card(0, "Tesla T4", 65536)
    driver = SimDriver.create(tmp_path / "box", [large], build=simdriver_build)
    container = make_container(tmp_path / "container", limiter_build, driver.libraries)
    container.limit((large, 60000), core=20)
    program = compile_program(tmp_path / "hidden", limiter_build, ["tests/hidden.c"])
    judge(lambda: [float(container.run(program, way))], [20])


def test_a_pause_before_a_wait_is_not_charged(make: Make, tmp_path: Path, limiter_build: Path) -> None:
    """Three times a second without work, the last two of them measured: 100 ms are charged each time, not a second."""
    program = compile_program(tmp_path / "hidden", limiter_build, ["tests/hidden.c"])
    assert float(make(20).run(program, "idle")) > 8


@pytest.mark.parametrize("before", [0, 4], ids=["one kernel", "behind short ones"])
def test_a_context_for_each_kernel_escapes_no_share(make: Make, compute: Path, before: int) -> None:
    """What it has in flight when it is destroyed runs to its end: 1.5 s at half of the card are 3 s."""
    assert float(make(50).run(compute, "renew", str(1500 * MS), str(before))) < 50 + POINTS


@pytest.fixture
def turns(limiter_build: Path, tmp_path: Path) -> Path:
    return compile_program(tmp_path / "turns", limiter_build, ["tests/turns.c"])


def test_many_threads_get_no_more_than_one(make: Make, turns: Path) -> None:
    """What a launch leaves for later ones to pay, all of them wait for together."""
    assert float(make(10).run(turns, "threads", str(10 * MS), "64", "4", timeout_s=120)) < 10 + POINTS


@pytest.mark.parametrize("before", [0, 1], ids=["one kernel", "behind a short one"])
def test_a_process_for_each_kernel_escapes_no_share(make: Make, turns: Path, before: int) -> None:
    """What a process leaves unpaid when it ends, the next one waits for. The last one pays for all."""
    container, count, ns = make(10), 4, 200 * MS
    began = time.monotonic()
    for _ in range(count):
        container.run(turns, "process", str(ns), str(before))
    container.run(turns, "process", "1000", "0")
    assert 100 * count * ns / 1e9 / (time.monotonic() - began) < 10 + POINTS


def test_more_streams_than_are_known_at_once(make: Make, compute: Path) -> None:
    make(50).run(compute, "streams", "5")


def test_killed_processes_hold_nobody(make: Make, compute: Path) -> None:
    container, seed = make(50), random.randrange(2**32)
    draw = random.Random(seed)
    with _start(container, compute, "follow", MS, 0.02) as survivor:
        assert survivor.stdout is not None
        for _ in range(12):
            with _start(container, compute, "follow", MS, 0.02) as victim:
                time.sleep(draw.uniform(0.02, 0.08))
                victim.kill()
            asked = time.monotonic()
            survivor.stdout.readline()
            assert time.monotonic() - asked < 5, seed
        survivor.kill()
    judge(lambda: _shares(compute, [container], MS, 1, 0.4, 1), [50])


def test_a_bucket_that_somebody_empties_frees_no_process(make: Make, compute: Path) -> None:
    container = make(3)  # it is held for longer than a process sleeps at once
    with _start(container, compute, "share", MS, 1, 0.6, 1) as process, container.usage.open("r+b", 0) as file:
        while process.poll() is None:
            file.seek(BUCKETS_AT)
            file.write(b"\0" * 64)
            time.sleep(0.0005)
        assert process.stdout is not None
        assert float(process.stdout.read()) < 3 + POINTS


@pytest.mark.sanitizer
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_under_a_sanitizer(
    tmp_path: Path, limiter_build: Path, driver: SimDriver, card: SimCard, sanitizer: str
) -> None:
    flag, build = f"-fsanitize={sanitizer}", tmp_path / "build"
    options: list[str | Path] = ["make", "-s", "-C", SOURCES, f"OUT={build}", "CC=cc", f"EXTRA={flag}"]
    done = subprocess.run(options, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    container = make_container(tmp_path / "container", build, driver.libraries)
    container.limit((card, 1024), core=50)
    program = compile_program(tmp_path / "program", limiter_build, ["tests/compute.c"], flag)
    for command in (("share", str(MS), "50", "0.5", "2"), ("capture",), ("destroy", str(MS)), ("streams", "3")):
        container.run(program, *command)
