"""Captures beside a thread that is measured: each graph is whole, and the limit holds afterwards as before."""

import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from limiter_functions import read_table
from native.limiterkit import SOURCES, Container, compile_program, make_container
from native.shareskit import POINTS, judge
from native.simkit import DRIVER_FILE

from edgegpu_sim.driver import SimDriver, make_card

CARD = make_card(0, "Tesla T4", 8192)
CORE = 40
OF_ANOTHER_STREAM = 906
"""What the driver says of a stream that cannot be used while another one captures: such launches are not measured."""
NOT_SUPPORTED = 801
"""What the limiter has in the place of a function that the driver lacks."""
WAYS = ("handed", "several", "modes", "forked", "lasting", "broken", "held")
"""What plugin/limiter/tests/captures.c does: after the first four the driver need not be asked any more."""
STOPPED_S = 0.3
TRIES = 3


@pytest.fixture
def driver(tmp_path: Path, simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path / "box", [CARD], build=simdriver_build)


@pytest.fixture
def container(tmp_path: Path, driver: SimDriver, limiter_build: Path) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit((CARD, 1024), core=CORE)
    return made


@pytest.fixture
def program(tmp_path: Path, limiter_build: Path) -> Path:
    return compile_program(tmp_path / "captures", limiter_build, ["tests/captures.c"])


@pytest.mark.parametrize("way", WAYS[:4])
def test_captures_that_ended_leave_nothing_behind(
    container: Container, driver: SimDriver, program: Path, way: str
) -> None:
    """The driver takes every launch for one of the same capture: so nothing is held for as long as it is asked."""
    driver.fail("cuStreamIsCapturing", OF_ANOTHER_STREAM)
    driver.fail("cuStreamGetCaptureInfo", NOT_SUPPORTED)
    judge(lambda: [float(container.run(program, way))], [CORE])


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_is_whole_and_the_limit_holds_after_it(container: Container, program: Path, way: str) -> None:
    judge(lambda: [float(container.run(program, way))], [CORE])


def test_a_driver_that_numbers_no_captures_waits_for_none(
    container: Container, driver: SimDriver, program: Path
) -> None:
    """Each captured launch would take seconds where two captures were thought to lie around it."""
    driver.fail("cuStreamGetCaptureInfo", NOT_SUPPORTED)
    judge(lambda: [float(container.run(program, "handed"))], [CORE])


def test_captures_that_no_hook_saw_begin_are_whole_but_for_the_first(
    container: Container, driver: SimDriver, program: Path
) -> None:
    judge(lambda: [float(container.run(program, "unseen", driver.libraries / DRIVER_FILE))], [CORE])


@contextmanager
def _started(container: Container, program: Path, way: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """Start a program that can be talked to."""
    with subprocess.Popen(
        [program, way],
        env=container.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        yield running, running.stdin, running.stdout


@contextmanager
def _stopped(
    container: Container, driver: SimDriver, program: Path, way: str
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """Start a program whose thread stands still in a call of the limiter's until the driver's faults are cleared."""
    with _started(container, program, way) as (running, to, out):
        driver.hang("cuEventElapsedTime")
        to.write("\n")
        yield running, to, out


def test_a_launch_whose_capture_ends_before_it_runs_is_held(
    container: Container, driver: SimDriver, program: Path
) -> None:
    with _started(container, program, "over") as (running, to, out):
        assert out.readline().strip() == "captures"
        driver.hang("cuThreadExchangeStreamCaptureMode")
        to.write("\n")
        assert out.readline().strip() == "ended"
        driver.clear()
        assert float(out.readline()) < CORE + POINTS
        assert running.wait(60) == 0


def test_a_launch_that_runs_between_two_captures_is_paid_for(
    container: Container, driver: SimDriver, program: Path
) -> None:
    """Whether its stream captures, the limiter asks before the launch and after it: both times it does."""
    questions = ("cuStreamIsCapturing", "cuStreamGetCaptureInfo")
    with _started(container, program, "between") as (running, to, out):
        assert out.readline().strip() == "captures"
        driver.hang("cuLaunchKernel")
        to.write("\n")
        assert out.readline().strip() == "ended"
        for question in questions:
            driver.hang(question)
        driver.clear("cuLaunchKernel")
        to.write("\n")
        assert out.readline().strip() == "again"
        driver.clear()
        to.write("\n")
        assert float(out.readline()) < CORE + POINTS
        to.close()
        assert running.wait(60) == 0


def test_a_capture_waits_for_a_thread_that_is_in_a_call_that_would_end_it(
    container: Container, driver: SimDriver, program: Path
) -> None:
    """On a busy machine a thread may stand still there for long."""
    ended = False
    for _ in range(TRIES):  # it waits for two seconds, which may be over before this process has gone on
        with _stopped(container, driver, program, "stopped") as (running, to, out):
            assert out.readline().strip() == "begins"
            went_on = select.select([out], [], [], STOPPED_S)[0] != []
            driver.clear()
            assert not went_on
            assert out.readline().strip() == "began"
            to.write("\n")
            to.close()
            ended = running.wait(60) == 0
        if ended:
            return
    assert ended


def test_a_thread_that_does_not_come_back_is_awaited_once(
    container: Container, driver: SimDriver, program: Path
) -> None:
    seen: list[list[float]] = []
    while len(seen) < TRIES and (not seen or seen[-1][1] > seen[-1][0] / 2):
        with _stopped(container, driver, program, "lost") as (running, to, out):
            seen.append([float(out.readline()) for _ in range(2)])
            driver.clear()
            to.write("\n")
            to.close()
            assert running.wait(60) == 0
    assert seen[-1][1] < seen[-1][0] / 2, seen


@pytest.mark.sanitizer
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_under_a_sanitizer(tmp_path: Path, limiter_build: Path, driver: SimDriver, sanitizer: str) -> None:
    flag, build = f"-fsanitize={sanitizer}", tmp_path / "build"
    options: list[str | Path] = ["make", "-s", "-C", SOURCES, f"OUT={build}", "CC=cc", f"EXTRA={flag}"]
    made = subprocess.run(options, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    container = make_container(tmp_path / "container", build, driver.libraries)
    container.limit((CARD, 1024), core=CORE)
    program = compile_program(tmp_path / "sanitized", limiter_build, ["tests/captures.c"], flag)
    for way in WAYS:
        container.run(program, way)
    container.run(program, "unseen", driver.libraries / DRIVER_FILE)


@pytest.mark.sanitizer
def test_each_form_gets_what_the_program_gave_and_is_counted(tmp_path: Path, limiter_build: Path) -> None:
    sources = ["tests/capture_forms.c"]
    forms = compile_program(tmp_path / "forms", limiter_build, sources, "-fsanitize=address,undefined")
    done = subprocess.run([forms], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_function_that_begins_or_ends_a_capture_is_hooked() -> None:
    """A capture that is not counted would have our events in it."""
    table = read_table(SOURCES / "cuda/functions.tsv")
    rules = {
        function.name: function.rule
        for function in table
        if "Capture" in function.name.replace("Recapture", "Capture")
        and ("Begin" in function.name or "End" in function.name)
    }
    assert len(rules) == 14
    assert set(rules.values()) == {"hook"}
