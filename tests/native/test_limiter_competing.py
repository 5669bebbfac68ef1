"""Containers that compete for a simulated card, with the plugin's control of shares beside them.

What the control gives is right once it has seen for some seconds how all of them run. So it is measured with `make
shares`, where nothing runs beside it: a machine that keeps the control waiting makes its figures late.
"""

import ast
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from kits.reruns import StarvationError
from native.limiterkit import BUCKETS_AT, Container, compile_program, make_container
from native.shareskit import (
    MS,
    PAIR_CASES,
    POINTS,
    TRIES,
    US,
    WHOLE,
    Row,
    Table,
    above,
    cells_of_the_day,
    judge_each_second,
    reaches,
)

from edgegpu_plugin.containers.container_folder import Charge
from edgegpu_sim.driver import SimCard, SimDriver, make_card

SETTLE_S = 4.0
"""What the control takes until it holds."""
LONG_NS = 50 * MS
SECONDS = {100 * US: 6, MS: 6, LONG_NS: 20}
"""For so many seconds kernels are measured, by their ns: of the long ones too each container runs over a hundred."""
SETTLING = 5
"""Seconds until the control holds."""

Make = Callable[[int], Container]


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

    def container(core: int) -> Container:
        made = make_container(tmp_path / f"container{next(numbers)}", limiter_build, driver.libraries)
        made.limit((card, 1024), core=core)
        return made

    return container


@contextmanager
def _controlled(driver: SimDriver, card: SimCard, policy: str, cores: dict[Path, int]) -> Iterator[None]:
    """Control the shares of containers in another process, as the plugin would."""
    script = Path(__file__).with_name("controlchild.py")
    words = [str(driver.root), card.uuid, policy, *(f"{folder}={core}" for folder, core in cores.items())]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    with subprocess.Popen([sys.executable, script, *words], env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield
        finally:
            child.kill()


def _start(container: Container, *command: object) -> subprocess.Popen[str]:
    words = [str(word) for word in command]
    return subprocess.Popen(words, env=container.environment(), stdout=subprocess.PIPE, text=True)


def _share(process: subprocess.Popen[str]) -> float:
    text = process.communicate(timeout=240)[0]
    assert process.returncode == 0
    return float(text)


def _lines(process: subprocess.Popen[str], count: int) -> list[float]:
    assert process.stdout is not None
    return [float(process.stdout.readline()) for _ in range(count)]


def _shares(compute: Path, containers: list[Container], ns: int, depth: int, *, seconds: float) -> list[float]:
    after = SETTLE_S if seconds > SETTLE_S else 0
    running = [_start(one, compute, "share", ns, depth, seconds, 1, after) for one in containers]
    return [_share(process) for process in running]


def _seconds(compute: Path, containers: list[Container], ns: int, depth: int) -> list[list[float]]:
    """Return what each container got in each second, once the control holds."""
    running = [_start(one, compute, "follow", ns, 1.0, depth) for one in containers]
    seen = [_lines(process, SETTLING + SECONDS[ns])[SETTLING:] for process in running]
    for process in running:
        process.kill()
        process.communicate()
    return seen


@pytest.mark.shares
@pytest.mark.parametrize(("ns", "depth", "pair"), cells_of_the_day(PAIR_CASES))
def test_each_of_two_containers_gets_its_share(
    make: Make,
    compute: Path,
    driver: SimDriver,
    card: SimCard,
    shares_table: Table,
    *,
    pair: tuple[int, int],
    ns: int,
    depth: int,
) -> None:
    """Or what the same program gets where nothing holds it: who waits for each kernel is kept waiting by the other.

    A single second may have more, in a try. For the control learns how much of what is measured are turns of others
    from how both run. Where the machine has kept one of them waiting, that is wrong for the next second, and the
    container gets more until the driver's count shows it.

    Kernels of 50 ms are judged by the average alone: a second has six of 30 percent, and beside another container up
    to two of them are let in before they run, which is ten points of a second.
    """
    larger = pair.index(max(pair))

    def measure(limits: Sequence[int]) -> list[list[float]]:
        containers = [make(core) for core in limits]
        held = {one.folder: core for one, core in zip(containers, limits, strict=True) if core < WHOLE}
        with _controlled(driver, card, "strict", held):
            return _seconds(compute, containers, ns, depth)

    def free() -> list[float]:
        """Of the larger one alone, or of two alike: nothing but its own limit is in a smaller one's way."""
        got = statistics.mean(measure([WHOLE if at == larger else core for at, core in enumerate(pair)])[larger])
        return [got if core == pair[larger] else 0.0 for core in pair]

    seen, able = judge_each_second(lambda: measure(pair), pair, free=free, one_by_one=ns < LONG_NS)
    cell = {"pair": pair, "ns": ns, "depth": depth}
    shares_table.add(Row("competing", cell, [*pair], able, [[*map(statistics.mean, tried)] for tried in seen]))
    for at, core in enumerate(pair):
        count = SECONDS[ns]
        got = [tried[at] for tried in seen]
        shares_table.add(Row("competing second", {**cell, "core": core}, [core] * count, [able[at]] * count, got))


@pytest.mark.shares
def test_the_turns_of_a_program_without_a_limit_are_not_charged(
    make: Make, compute: Path, driver: SimDriver, card: SimCard
) -> None:
    """Without the control the container gets 34 percent: each measures the other's turns too."""
    seen = []
    for _ in range(TRIES):
        held, free = make(40), make(100)
        with _controlled(driver, card, "strict", {held.folder: 40}):
            beside = _start(free, compute, "share", MS, 50, 2 * SETTLE_S + 5, 1)
            seen.append(_share(_start(held, compute, "share", MS, 50, 2 * SETTLE_S + 4, 1, 2 * SETTLE_S)))
            _share(beside)
        assert seen[-1] <= 40 + POINTS, seen
        if seen[-1] >= 36:
            return
    raise StarvationError(str(seen))


@pytest.mark.shares
def test_turns_of_others_are_not_charged(make: Make, compute: Path, driver: SimDriver, card: SimCard) -> None:
    """Without the control the second gets half of its share here: short kernels, deep queues."""
    seen = []
    for _ in range(TRIES):
        containers = [make(30), make(40)]
        with _controlled(driver, card, "strict", {containers[0].folder: 30, containers[1].folder: 40}):
            # 4 s: what a bucket saves up for a program that was kept waiting (50 ms) is less than POINTS of them.
            seen.append(_shares(compute, containers, 100 * US, 50, seconds=SETTLE_S + 4))
        assert not above(seen[-1], [30, 40]), seen
        if seen[-1][1] >= 30:
            return
    raise StarvationError(str(seen))


@pytest.mark.shares
def test_a_container_that_writes_its_usage_file_gains_nothing(
    make: Make, compute: Path, driver: SimDriver, card: SimCard
) -> None:
    """It says without end that its bucket holds it back, while the control could give it more.

    Who writes there races with the limiter, so what it gets for a while is a matter of luck, and is measured again.
    """
    seen = list[list[float]]()
    for _ in range(TRIES):
        honest, hostile = make(30), make(20)
        with _controlled(driver, card, "strict", {honest.folder: 30, hostile.folder: 20}):
            beside = _start(honest, compute, "share", MS, 50, SETTLE_S + 3, 1)
            process = _start(hostile, compute, "share", MS, 50, SETTLE_S + 3, 1, SETTLE_S)
            with hostile.usage.open("r+b", 0) as file:
                while process.poll() is None:
                    file.seek(BUCKETS_AT)
                    file.write((((time.monotonic_ns() + 1_000_000) // 8) << 7 | 20).to_bytes(8, "little") + b"\0" * 56)
                    time.sleep(0.0005)
            seen.append([_share(beside), _share(process)])
        if seen[-1][1] <= 20 + 2 * POINTS:
            return
    pytest.fail(str(seen))


@pytest.mark.shares
def test_a_container_that_hands_work_from_process_to_process_takes_nothing_from_another(
    make: Make, compute: Path, driver: SimDriver, card: SimCard
) -> None:
    """Of short processes the driver tells a part: where that was believed the other got 37 percent."""
    seen = []
    for _ in range(TRIES):
        honest, hostile = make(60), make(30)
        with _controlled(driver, card, "strict", {honest.folder: 60, hostile.folder: 30}):
            beside = _start(honest, compute, "share", MS, 50, SETTLE_S + 4, 1, SETTLE_S)
            while beside.poll() is None:
                for short in [_start(hostile, compute, "share", MS, 50, 0.2, 1) for _ in range(2)]:
                    _share(short)
            seen.append(_share(beside))
        if seen[-1] >= 50:
            return
    raise StarvationError(str(seen))


def test_elastic_containers_share_what_nobody_needs_and_give_it_back(
    make: Make, compute: Path, driver: SimDriver, card: SimCard
) -> None:
    first, second = make(30), make(60)
    with (
        _controlled(driver, card, "elastic", {first.folder: 30, second.folder: 60}),
        _start(first, compute, "follow", MS, 0.25) as process,
    ):
        assert process.stdout is not None
        reaches(map(float, itertools.islice(process.stdout, 40)), 50)
        beside = _start(second, compute, "share", MS, 50, 6, 1, 1)
        windows = [float(line) for line in itertools.islice(process.stdout, 24)]
        got = _share(beside)
        process.kill()
    assert min(windows[4:12]) < 45, windows  # within a second or two on a busy machine
    assert got > 40, (got, windows)


@pytest.mark.parametrize(("valid_s", "is_taken"), [(4.0, True), (-0.001, False), (3600.0, False)])
def test_a_charge_is_taken_until_its_moment_and_none_that_is_too_far(
    make: Make, compute: Path, card: SimCard, *, valid_s: float, is_taken: bool
) -> None:
    """What a plugin that is gone has left ends by itself."""
    seen = []
    for _ in range(TRIES):
        container = make(20)
        until_ms = int((time.monotonic() + valid_s) * 1000)
        container.limit((card, 1024), core=20, charge=Charge(250, until_ms))
        seen.append(_shares(compute, [container], MS, 1, seconds=3)[0])
        assert seen[-1] <= (4 * 20 if is_taken else 20) + POINTS, seen  # a fourth is charged
        if seen[-1] > (40 if is_taken else 5):
            return
    raise StarvationError(str(seen))


def test_the_driver_tells_what_each_process_has(make: Make, compute: Path, driver: SimDriver, card: SimCard) -> None:
    """Whole percent by pid, of the time since the last question."""
    script = (
        "import sys; from pathlib import Path; from edgegpu_plugin.cards.nvml_library import NvmlLibrary\n"
        "library = NvmlLibrary(root=Path(sys.argv[1]), recover_s=1); library.query()\n"
        "for line in sys.stdin: print(library.process_shares([sys.argv[2], 'GPU-none']), flush=True)\n"
    )
    asking = [sys.executable, "-c", script, str(driver.root), card.uuid]
    with (
        subprocess.Popen(asking, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asker,
        _start(make(100), compute, "follow", MS, 0.1) as free,
        _start(make(20), compute, "follow", MS, 0.1) as held,
    ):

        def ask() -> dict[str, dict[int, int]]:
            assert asker.stdin is not None
            assert asker.stdout is not None
            asker.stdin.write("\n")
            asker.stdin.flush()
            return cast("dict[str, dict[int, int]]", ast.literal_eval(asker.stdout.readline()))

        for process in (free, held):
            assert process.stdout is not None
            list(itertools.islice(process.stdout, 15))
        (shares,) = ask().values()
        for process in (free, held):
            process.kill()
            process.wait()
        after = ask()
    assert shares.keys() == {free.pid, held.pid}
    assert 0 < shares[held.pid] <= 25
    assert shares[held.pid] < shares[free.pid] <= 100 - shares[held.pid]
    assert after == {}, "who has ended is not listed"
