"""Ways to take card memory past 1 GiB, on the simulated driver: what it says it gave is within the limit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from native.limiterkit import HANG_TIMEOUT_S, MIB, SOURCES, Container, compile_program, make_container
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

STRESS = Path(__file__).with_name("stress.c")
SCENARIO_PROGRAM = Path(__file__).with_name("bindingschild.py")
LIMIT_MIB, CONTEXT_MIB, MODULE_MIB = 1024, 100, 18
EACH_MIB = 64
OOM = 2
LEAST_WAYS = 20
SCENARIOS = (
    "memory",
    "pools",
    "virtual_memory",
    "arrays",
    "graphs",
    "captures",
    "times",
    "waits",
    "contexts",
    "host_memory",
    "peers",
)
"""Not green contexts: code that was loaded in one counts until it is unloaded, whatever the driver makes of it."""
TIMED = ("milliseconds", "after the other", "submitted at once", "no busy waiting", "waited")
"""What they say of time, which is the machine's; tests/native/test_simdriver_bindings.py has the driver's."""

Play = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def driver(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    versions = SimVersions(context_mib=CONTEXT_MIB, module_mib=MODULE_MIB, cuda="13.5")
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def play(tmp_path: Path, limiter_build: Path, container: Container) -> Iterator[Play]:
    program = compile_program(tmp_path / "escapes", limiter_build, ["tests/escapes.c"])
    with ExitStack() as stack:

        def start() -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [program],
                env=container.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def _said(processes: list["subprocess.Popen[str]"]) -> list[str]:
    """Return the next line of each: what it prints when it waits."""
    return [process.stdout.readline().strip() for process in processes if process.stdout is not None]


def _go_on(processes: list["subprocess.Popen[str]"]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def test_what_pools_and_graphs_keep_counts_and_is_used_again(
    tmp_path: Path, limiter_build: Path, container: Container, driver: SimDriver, two_cards: list[SimCard]
) -> None:
    container.run(compile_program(tmp_path / "kept", limiter_build, ["tests/kept.c"]))
    assert driver.used_mib(two_cards[0].uuid) == 0
    assert container.counted() == CONTEXT_MIB * MIB  # of a process that has ended, until somebody looks


def test_a_synchronisation_gives_back_to_the_others_what_a_pool_kept(container: Container) -> None:
    with Child(container.libraries) as first, Child(container.libraries) as second:
        first.open_cuda()
        second.open_cuda()
        status, address = first.call("cuMemAllocAsync", "&u64", 600 * MIB, 0)
        assert status == 0
        assert first.call("cuMemFreeAsync", address, 0) == [0]
        assert second.call("cuMemAlloc_v2", "&u64", 800 * MIB)[0] == OOM
        assert first.call("cuStreamSynchronize", 0) == [0]
        second.alloc(800)


def _sanitized(tmp_path: Path, driver: SimDriver, card: SimCard, flag: str) -> Container:
    """Lay out a container whose limiter was built with a sanitizer."""
    build = tmp_path / "build"
    make: list[str | Path] = ["make", "-s", "-C", SOURCES, f"OUT={build}", "CC=cc", f"EXTRA={flag}"]
    subprocess.run(make, check=True, capture_output=True, text=True)
    made = make_container(tmp_path / "sanitized", build, driver.libraries)
    made.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.mark.sanitizer
def test_what_pools_and_graphs_keep_under_a_sanitizer(
    tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]
) -> None:
    flag = "-fsanitize=address,undefined"
    container = _sanitized(tmp_path, driver, two_cards[0], flag)
    container.run(compile_program(tmp_path / "kept", limiter_build, ["tests/kept.c"], flag))


@pytest.mark.sanitizer
def test_threads_that_do_everything_at_once_race_for_nothing(
    tmp_path: Path, driver: SimDriver, two_cards: list[SimCard]
) -> None:
    container = _sanitized(tmp_path, driver, two_cards[0], "-fsanitize=thread")
    program = tmp_path / "stress"
    link = [f"-L{container.libraries}", "-l:libcuda.so.1", "-lpthread"]
    subprocess.run(["cc", "-g", "-O1", "-fsanitize=thread", "-o", program, STRESS, *link], check=True)
    rounds, threads = 10, 6
    assert (
        container.run(program, str(rounds)) == f"{rounds * threads} {(CONTEXT_MIB + MODULE_MIB) * MIB}\n"
    )  # one module stays


@pytest.mark.parametrize(("count", "uncounted_mib"), [(1, 0), (2, 0), (1, LIMIT_MIB)])
def test_no_way_leads_past_the_limit(
    play: Play, container: Container, driver: SimDriver, two_cards: list[SimCard], count: int, uncounted_mib: int
) -> None:
    """What the driver counts beyond the container's own count leaves as little as a smaller limit."""
    whole = LIMIT_MIB + uncounted_mib
    container.limit((two_cards[0], whole), context_mib=CONTEXT_MIB, uncounted_mib=uncounted_mib)
    processes = [play() for _ in range(count)]
    wrong: list[tuple[object, ...]] = []
    ways = 0
    assert set(_said(processes)) == {"ready 0"}
    _go_on(processes)
    while all(lines := _said(processes)):
        names = {line.split()[0] for line in lines}
        assert len(names) == 1, lines
        used = driver.used_mib(two_cards[0].uuid)
        _go_on(processes)
        # A library's code is there before its size is known: one too much in the container, and no further.
        most = LIMIT_MIB * (1.02 if names <= {"library", "library_again", "enumerated"} else 1)
        # Full but for what one more would take, beside contexts of the other processes that went after a refusal.
        if not LIMIT_MIB - EACH_MIB - count * CONTEXT_MIB < used <= most:
            wrong.append((lines, used))
        back = _said(processes)
        assert {line.split()[1] for line in back} == {"back"}, (lines, back)
        left = driver.used_mib(two_cards[0].uuid)
        counted = container.counted() / MIB
        if left != count * CONTEXT_MIB or counted != left:
            wrong.append((back, left, counted))
        _go_on(processes)
        ways += 1
    assert wrong == []
    assert ways > LEAST_WAYS
    assert [process.wait(20) for process in processes] == [0] * count


def _load_lazily(child: Child) -> int:
    """Load a module and ask for a function of it; the status of what refused that, 0 for none."""
    status, module = child.call("cuModuleLoadData", "&ptr", "image")
    return int(status or child.call("cuModuleGetFunction", "&ptr", module, "kernel")[0])


@pytest.mark.parametrize("count", [1, 2])
def test_code_that_comes_with_a_function_leads_no_further_past_the_limit_than_one_module(
    container: Container, driver: SimDriver, two_cards: list[SimCard], count: int
) -> None:
    """The programs go on for 20 times after they were told that there is no memory."""
    with ExitStack() as stack:
        lazy = {"EDGEGPU_SIM_MODULE_LOADING": "LAZY"}
        children = [stack.enter_context(Child(container.libraries, env=lazy)) for _ in range(count)]
        for child in children:
            child.open_cuda()
        refused = 0
        while refused < 20 * count:
            answers = {_load_lazily(child) for child in children}
            assert answers <= {0, OOM}
            refused += OOM in answers
        used = driver.used_mib(two_cards[0].uuid)
        assert LIMIT_MIB - MODULE_MIB <= used <= LIMIT_MIB * 1.02
        assert container.counted() == used * MIB


@pytest.mark.sanitizer
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nvidias_bindings_play_alike_with_and_without_the_limiter(
    container: Container, driver: SimDriver, two_cards: list[SimCard], scenario: str
) -> None:
    container.limit(*((card, card.mib) for card in two_cards), context_mib=CONTEXT_MIB)

    def played(libraries: Path) -> dict[str, object]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        command: list[str | Path] = [sys.executable, SCENARIO_PROGRAM, scenario]
        done = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=HANG_TIMEOUT_S
        )
        said: dict[str, object] = json.loads(done.stdout)
        return {name: value for name, value in said.items() if name not in TIMED}

    held, native = played(container.libraries), played(driver.libraries)
    if scenario == "virtual_memory":  # what was exported counts until the process ends; the simulated driver frees it
        for name in ("unmapped", "on the host"):
            native[name] = int(str(native[name])) + EACH_MIB
    assert held == native
