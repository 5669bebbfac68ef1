"""What every tier uses: hypothesis profiles, the simulated driver built once, a short folder for sockets."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)  # hypothesis derandomizes in CI
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

SEED = "hypothesis_seed"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed for this run's examples where none was given, before hypothesis and xdist's processes read it."""
    if config.getoption(SEED, None) is None:
        setattr(config.option, SEED, secrets.randbelow(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to draw the same examples again."""
    return f"examples of this run: --hypothesis-seed={config.getoption(SEED)}"


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
def _short_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="eg-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """Yield a new folder with a short path: a unix socket's path holds 107 bytes, tmp_path alone may take them all."""
    with _short_folder() as path:
        yield path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL that runs for all tests of this process."""
    from kits import postgres  # noqa: PLC0415  (SQLAlchemy is slow to load, and few tiers need it)

    postgres.need()
    with _short_folder() as folder, postgres.running(folder) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cloud)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database: the test runs on each engine that a store may have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()
