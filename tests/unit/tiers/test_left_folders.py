"""What a run leaves below /tmp: the folders of failed tests, a toy tree of tests through our conftest.py."""

import os
import subprocess
import sys
from pathlib import Path

from unit.tiers.test_examples_drawn import FEW_PLUGINS, ROOT

TOY = """
import pytest

@pytest.fixture
def breaks(tmp_path):
    raise AssertionError

@pytest.fixture
def ends_badly(tmp_path):
    yield
    raise AssertionError

@pytest.fixture
def inside(tmp_path):
    return tmp_path

def test_passes(tmp_path):
    (tmp_path / "file").touch()

def test_passes_by_a_fixture(inside):
    pass

def test_fails(tmp_path):
    (tmp_path / "file").touch()
    raise AssertionError

def test_set_up_fails(breaks):
    pass

def test_teardown_fails(ends_badly):
    pass
"""


def test_the_folder_of_a_test_goes_once_it_has_passed(tmp_path: Path) -> None:
    (tmp_path / "test_toy.py").write_text(TOY)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(tmp_path), "--confcutdir", str(ROOT / "tests"), "-p", "conftest"]
    ran = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "left"), str(tmp_path / "test_toy.py")],
        env={**os.environ, **FEW_PLUGINS, "PYTHONPATH": str(ROOT / "tests")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 3 passed, 2 errors" in ran.stdout, ran.stdout + ran.stderr
    left = {path.name for path in (tmp_path / "left").iterdir() if not path.is_symlink()}
    assert left == {"test_fails0", "test_set_up_fails0", "test_teardown_fails0"}
    assert (tmp_path / "left/test_fails0/file").exists()
