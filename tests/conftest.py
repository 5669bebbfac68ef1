"""What every tier uses: hypothesis profiles, the simulated driver built once, a short folder for sockets."""

from __future__ import annotations

import fcntl
import gc
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from kits import reruns, results
from kits.daily import files_of_the_day, today, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kits.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)  # hypothesis derandomizes in CI
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

SEED = "hypothesis_seed"
_ROOM_BYTES = 4 << 30
_FAILED = pytest.StashKey[bool]()
_SHORT = "/tmp"  # noqa: S108  (made with mkdtemp)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed for this run's examples where none was given, before hypothesis and xdist's processes read it.

    SIGINT has an effect again where a script has started the tests in the background: a shell lets such a job ignore
    it, and every program that a test starts and interrupts would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption(SEED, None) is None:
        setattr(config.option, SEED, secrets.randbelow(2**32))
    results.record(config)


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to draw the same examples again, and how to take the same part of the files."""
    part = "" if turns() == 1 else f"; a part of the files, by turns: TEST_TURNS={turns()} BOX_DAY={today()}"
    return f"examples of this run: --hypothesis-seed={config.getoption(SEED)}{part}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Read the tests without the garbage collector, which would look at the same million objects again and again.

    They live as long as the process, so it does not look at them later either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after the markers have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where TEST_TURNS is set, leave out the files whose turn comes on another day, but for tests of each day.

    A second run of what has failed has no turns, and takes no test of which the first run counts.
    """
    reruns.mark(items)
    if reruns.is_rerun():
        taken = [item for item in items if reruns.may_run_again(item)]
    elif turns() == 1:
        return
    else:
        taken = of_the_turn(items)
    config.hook.pytest_deselected(items=list(set(items) - set(taken)))
    items[:] = taken


def of_the_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of the files whose turn it is, and those of each day."""
    theirs = files_of_the_day(str(item.path) for item in items if not item.get_closest_marker("daily"))
    return [item for item in items if item.get_closest_marker("daily") or str(item.path) in theirs]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remove a test's folder once it has passed; a failed one's stays, also where its set-up or teardown failed.

    pytest's own policy `failed` removes those two before it knows. What is mounted below a folder is not removed.
    """
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "teardown" and folder is not None and not item.stash[_FAILED] and not _has_mounts(folder):
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _has_mounts(folder: Path) -> bool:
    return f" {folder}/" in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail a test that leaves this process at real-time priority: it and all that it starts would starve the others."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        for task in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))
        pytest.fail(f"{item.nodeid} has left this process at real-time priority", pytrace=False)


@pytest.fixture(scope="session")
def simdriver_build() -> Path:
    """Return the folder of the simulated driver (libraries, nvidia-smi, simctl), built where it is not current."""
    out = ROOT / "build" / "simdriver"
    out.parent.mkdir(exist_ok=True)
    with (out.parent / "simdriver.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command: list[str | Path] = ["make", "-C", ROOT / "simulation" / "simdriver", f"OUT={out}"]
        quiet = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
        made = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    if made.returncode:
        pytest.fail(f"cannot build simulation/simdriver:\n{made.stdout}{made.stderr}", pytrace=False)
    return out


@pytest.fixture(scope="session")
def limiter_build() -> Path:
    """Return the folder with the limiter's two libraries, built where they are not current."""
    quiet = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    made = subprocess.run(["make", "-C", ROOT, "limiter"], capture_output=True, text=True, check=False, env=quiet)
    if made.returncode:
        pytest.fail(f"cannot build plugin/limiter:\n{made.stdout}{made.stderr}", pytrace=False)
    return ROOT / "build" / "limiter"


@contextmanager
def _short_folder(parent: str = _SHORT) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="eg-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """Yield a new folder with a short path: a unix socket's path holds 107 bytes, tmp_path alone may take them all."""
    with _short_folder() as path:
        yield path


def _in_memory() -> str:
    """Return a folder for what is written without end and kept by nobody: in memory where there is room for it."""
    memory = Path("/dev/shm")  # noqa: S108  (made with mkdtemp)
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES else _SHORT


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL that runs for all tests of this process."""
    from kits import postgres  # noqa: PLC0415  (SQLAlchemy is slow to load, and few tiers need it)

    postgres.need()
    with _short_folder(_in_memory()) as folder, postgres.running(folder) as server:
        yield server


ENGINES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.cloud)]


@pytest.fixture(params=ENGINES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of an empty database: the test runs on each engine that a store may have."""
    yield from _database(request, tmp_path, lambda server: server.new_database())


@pytest.fixture(params=ENGINES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a database for `kits.stores.open_store`, on each engine; PostgreSQL's has its tables already."""
    yield from _database(request, tmp_path, lambda server: server.new_store())


def _database(request: pytest.FixtureRequest, folder: Path, create: Callable[[PostgresServer], str]) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = create(server)
    yield url
    server.drop(url)
