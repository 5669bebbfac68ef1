"""The limiter with policy=mps: processes become MPS's clients, and whoever is none is held by time."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from kits.mps import MpsControl
from native.limiterkit import Container, compile_program, make_container
from native.shareskit import AT_LOAD, reaches

from edgegpu_sim.driver import SimCard, SimDriver, make_card

MS = 1_000_000
CORE = 30
POINTS = 2.0
TRIES = 4
WINDOWS = 20
ALL = 60
"""The least percent of the card that a program gets which nothing holds, on a machine that others use as well."""

Share = Callable[..., float]


@pytest.fixture(scope="module")
def compute(limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("compute") / "compute", limiter_build, ["tests/compute.c"])


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a folder with a path that leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        yield Path(folder)


@pytest.fixture
def card() -> SimCard:
    return make_card(0, "Tesla T4", 8192)


@pytest.fixture
def driver(short: Path, card: SimCard, simdriver_build: Path) -> SimDriver:
    return SimDriver.create(short / "box", [card], build=simdriver_build)


@pytest.fixture
def container(short: Path, limiter_build: Path, driver: SimDriver, card: SimCard) -> Container:
    made = make_container(short / "c", limiter_build, driver.libraries)
    (made.folder / "mps").mkdir()
    made.limit((card, 1024), core=CORE, policy="mps")
    return made


@pytest.fixture
def control(driver: SimDriver, container: Container) -> Iterator[MpsControl]:
    with MpsControl(driver.root / "usr/bin/nvidia-cuda-mps-control", container.folder / "mps") as made:
        made.start()
        yield made


@pytest.fixture
def share(compute: Path, container: Container) -> Share:
    """Return what of the card a program's work took, in percent, with more variables if wanted."""

    def of(*, processes: int = 1, seconds: float = 0.5, work: str = "share", **variables: str) -> float:
        environment = {**container.environment(), **variables}
        words = [str(compute), work, str(MS), "1", str(seconds), str(processes)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=True)
        return float(done.stdout)

    return of


def is_held(measure: Callable[[], float]) -> None:
    """Hold a program to its share of the time; other programs of this machine may disturb a run."""
    reaches((measure() for _ in range(TRIES)), AT_LOAD * CORE, CORE + POINTS)


def test_a_client_has_multiprocessors_and_is_not_held_by_time(share: Share, control: MpsControl) -> None:
    reaches((share() for _ in range(TRIES)), ALL)
    assert control.asked() == {CORE}


def test_without_a_daemon_the_share_is_one_of_time(share: Share) -> None:
    is_held(share)


@pytest.mark.parametrize(
    "variables",
    [
        {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"},
        {"CUDA_MPS_PIPE_DIRECTORY": ""},
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"},
        {"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "1"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_what_the_author_sets_does_not_count(share: Share, control: MpsControl, variables: dict[str, str]) -> None:
    share(seconds=0.1, **variables)
    assert control.asked() == {CORE}


def test_several_processes_together_get_no_more_than_the_container(share: Share, control: MpsControl) -> None:
    """Each has its part of the multiprocessors: of the time all of them get a third, once they know of each other."""
    assert any(share(processes=3, seconds=2) <= 100 / 3 + 8 for _ in range(TRIES))
    assert control.asked() == {CORE}


@pytest.mark.parametrize(
    ("core", "policy", "most"),
    [(CORE // 2, "mps", 50), (CORE, "strict", CORE)],
    ids=["half of it", "held by time from now on"],
)
def test_a_change_is_followed_by_running_clients(
    compute: Path, container: Container, card: SimCard, control: MpsControl, core: int, policy: str, most: int
) -> None:
    """The multiprocessors that a client has stay its own: half the share is half the time of them."""
    words = [str(compute), "follow", str(MS), "0.2"]
    with subprocess.Popen(words, env=container.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            windows = map(float, process.stdout)
            reaches(islice(windows, WINDOWS), ALL)
            container.limit((card, 1024), core=core, policy=policy)
            reaches(islice(windows, WINDOWS), AT_LOAD * most, most + POINTS)
        finally:
            process.kill()
    assert control.asked() == {CORE}


def test_without_the_policy_nothing_is_asked_of_mps(
    share: Share, container: Container, card: SimCard, control: MpsControl
) -> None:
    container.limit((card, 1024), core=CORE, policy="strict")
    is_held(share)
    assert control.asked() == set()


def test_a_program_that_chooses_multiprocessors_itself_is_held_by_time(share: Share, control: MpsControl) -> None:
    is_held(lambda: share(work="own"))
    assert control.asked() == {CORE}
