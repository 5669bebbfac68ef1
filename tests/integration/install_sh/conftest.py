"""A bundle of a stub environment, a host that serves it, and a root to install it in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.install import Host, Sandbox, make_bundle, make_environment, serve


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what a host serves; no test changes it."""
    made = tmp_path_factory.mktemp("served")
    done = make_bundle(made / "bundle", make_environment(made / "env"))
    assert (done.returncode, done.stderr) == (0, "")
    return made / "bundle"


@pytest.fixture(scope="session")
def script(served: Path) -> str:
    return (served / "install.sh").read_text()


@pytest.fixture
def host(served: Path, tmp_path: Path) -> Iterator[Host]:
    copy = shutil.copytree(served, tmp_path / "host")
    with serve(copy, tmp_path / "keys") as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return the folder that the host serves, to spoil."""
    return tmp_path / "host"


@pytest.fixture
def box(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path / "box")
