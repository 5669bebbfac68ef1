"""Which examples hypothesis draws in a run of the tests: new ones each time, the same ones by the seed it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = "pytest_timeout,_hypothesis_pytestplugin"  # the others take a second to load
FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
PROBE = """
from hypothesis import given, settings, strategies

def test_it() -> None:
    drawn = []

    @settings(database=None, max_examples=5)
    @given(strategies.integers(0, 2**64))
    def draws(value: int) -> None:
        drawn.append(value)

    draws()
    print("drawn", drawn, "blob", settings().print_blob, "derandomized", settings().derandomize)
"""


def told(folder: Path, *words: str, **variables: str) -> str:
    """Run a test below our conftest.py, as a process of its own; return what it said."""
    (folder / "test_probe.py").write_text(PROBE)
    env = {key: value for key, value in os.environ.items() if key not in {"CI", "HYPOTHESIS_PROFILE"}}
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(ROOT), "--confcutdir", str(ROOT / "tests"), "-p", "conftest", *words]
    ran = subprocess.run(
        [*command, str(folder / "test_probe.py")],
        env={**env, **FEW_PLUGINS, "PYTHONPATH": str(ROOT / "tests"), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def drawn(said: str) -> str:
    found = re.search(r"drawn (\[.*?\])", said)
    assert found, said
    return found[1]


def test_each_run_draws_others_and_the_seed_of_its_header_draws_them_again(tmp_path: Path) -> None:
    first, second = told(tmp_path, CI="true"), told(tmp_path, CI="true")
    assert drawn(first) != drawn(second)
    option = re.search(r"^examples of this run: (--hypothesis-seed=\d+)$", first, re.MULTILINE)
    assert option, first
    again = told(tmp_path, option[1], CI="true")
    assert drawn(again) == drawn(first)
    assert option[0] in again


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"HYPOTHESIS_PROFILE": "ci"}])
def test_in_ci_a_failure_prints_what_reproduces_it_and_examples_stay_random(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    assert "blob True derandomized False" in told(tmp_path, **variables)
