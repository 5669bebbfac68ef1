"""The relocatable environment: moved, read-only, called through links, with nothing in its surroundings to lean on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def python_folder() -> str:
    """Return the folder of the interpreter that the tests run on: the box's Python of the same version."""
    return str(Path(sys.executable).resolve().parent)


@pytest.fixture(scope="module")
def moved(simdriver_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert simdriver_build.is_dir()
    made = tmp_path_factory.mktemp("made")
    subprocess.run([ROOT / "tools/env", made], check=True, cwd=ROOT)
    target = tmp_path_factory.mktemp("opt") / "edgegpu" / "0.1.0"
    shutil.move(made / "edgegpu", target)
    return target


def run(command: Path, *args: str, folder: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**BARE, "PATH": f"{folder}:{BARE['PATH']}", **env}
    return subprocess.run([command, *args], capture_output=True, text=True, check=False, env=full, cwd="/", timeout=60)


@pytest.mark.parametrize("command", ["edgegpu", "edgegpu-plugin"])
def test_starts_from_a_moved_folder(moved: Path, python_folder: str, command: str) -> None:
    done = run(moved / "bin" / command, "--help", folder=python_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert command in done.stdout


def test_starts_through_links(moved: Path, python_folder: str, tmp_path: Path) -> None:
    current = tmp_path / "current"
    current.symlink_to(moved)
    command = tmp_path / "edgegpu-plugin"
    command.symlink_to("current/bin/edgegpu-plugin")
    assert run(command, "--help", folder=python_folder).returncode == 0


def test_ignores_packages_around_it(moved: Path, python_folder: str, tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise SystemExit('the wrong grpc')")
    done = run(moved / "bin/edgegpu-plugin", "--help", folder=python_folder, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0


def test_says_which_python_it_misses(moved: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other"
    shutil.copytree(moved / "bin", copy / "bin")
    (copy / "lib").mkdir()
    (copy / "lib/python-version").write_text("3.99\n")
    done = run(copy / "bin/edgegpu-plugin", "--help", folder="/usr/bin")
    assert done.returncode == 127
    assert "cannot find Python 3.99" in done.stderr


def test_holds_no_path_of_this_machine(moved: Path) -> None:
    places = [str(ROOT).encode(), str(moved.parent).encode()]
    files = [path for path in moved.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if any(place in path.read_bytes() for place in places)]


def test_is_not_written_to_when_it_runs(moved: Path, python_folder: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    run(moved / "bin/edgegpu-plugin", "--help", folder=python_folder)
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == before


def test_brings_the_simulated_driver_and_the_unit(moved: Path) -> None:
    assert os.access(moved / "build/simdriver/nvidia-smi", os.X_OK)
    assert (moved / "systemd/edgegpu-plugin.service").is_file()
