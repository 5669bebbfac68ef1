"""The script `.ci/run` in a toy checkout: its `make` is a script that ends as the test says, its pytest is real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STEPS = "lint bundle test box churn cloud bugs demo chaos driver native fuzz e2e shares bench".split()  # noqa: SIM905  (a list of words)
MAKE = """#!/bin/sh
# make: notes what was asked, and ends as the file of the first target says.
[ "$1" = -C ] && exit 1
echo "$1" >> asked
[ ! -f "ends/$1" ] || . "./ends/$1"
echo "$1 is well"
"""
PYTEST = "-p no:cacheprovider -c {root}/pyproject.toml --rootdir . --confcutdir . -p conftest"
CHANCE = """
from pathlib import Path
import pytest

@pytest.mark.daily
def test_{0}():
    mark = Path(__file__).parent / "{0}.ran"
    ran = mark.exists()
    mark.touch()
    assert ran, "the port was taken"
"""


class Checkout:
    """A folder that the script takes for its checkout."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        for name in (".ci", ".venv/bin", "ends", "tests", "bin"):
            (self.root / name).mkdir(parents=True)
        text = (ROOT / ".ci/run").read_text(encoding="utf-8")
        (self.root / ".ci/run").write_text(text.replace("/proc/sys/kernel/sched_autogroup_enabled", "/nonexistent"))
        (self.root / "tools").symlink_to(ROOT / "tools")
        self.program("bin/make", MAKE)
        self.program("bin/apt-get", "#!/bin/sh\n")
        self.program(".venv/bin/python", f'#!/bin/sh\n[ "$1" = -m ] || exit 0\nexec {sys.executable} "$@"\n')

    def program(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def ends(self, target: str, script: str) -> None:
        (self.root / "ends" / target).write_text(script)

    def tests(self, target: str, text: str) -> None:
        """Let a target run a test of its own by pytest."""
        (self.root / f"tests/test_{target}.py").write_text(text)
        options = PYTEST.format(root=ROOT)
        self.ends(target, f".venv/bin/python -m pytest {options} tests/test_{target}.py || exit 2\n")

    def run(self) -> tuple[int, str]:
        options = PYTEST.format(root=ROOT)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "BOX_"))}
        env |= {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "EDGEGPU_K3S": "/bin/true", "PYTEST_ADDOPTS": options}
        env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout,_hypothesis_pytestplugin"}
        env |= {"EDGEGPU_GATE_STATE": str(self.root / "state"), "PYTHONPATH": f"{ROOT}/tests:{ROOT}/tools"}
        ran = subprocess.run(
            ["bash", ".ci/run"], cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return ran.returncode, ran.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def table(said: str) -> dict[str, str]:
    """Return what the closing table says of each step."""
    closing = said[said.index("=== summary") :]
    return dict(re.findall(r"^(\w+) +\d+ s  (\S.*?)(?:   .*)?$", closing, re.MULTILINE))


def test_a_run_in_which_all_is_well(checkout: Checkout) -> None:
    status, said = checkout.run()
    assert (status, table(said)) == (0, dict.fromkeys(STEPS, "passed")), said
    assert sorted((checkout.root / "asked").read_text().split()) == sorted(STEPS)
    assert said.endswith("===== passed: 0 passed, 0 unsteady (at most 3), 0 skipped, 15 steps =====\n")
    seen = json.loads((checkout.root / "state/seen.json").read_text())
    assert {"lint", "bench"} < set(seen)
    assert len([row for row in seen if row.startswith("e2e ")]) == 1


def test_what_passes_alone_is_unsteady_in_a_step_and_in_a_lane(checkout: Checkout) -> None:
    checkout.tests("test", CHANCE.format("web"))
    checkout.tests("cloud", CHANCE.format("pages"))
    status, said = checkout.run()
    assert status == 0, said
    assert {name: word for name, word in table(said).items() if word != "passed"} == dict.fromkeys(
        ("test", "cloud"), "passed, 1 unsteady"
    )
    rows = json.loads((checkout.root / "build/unsteady.json").read_text())
    assert [(row["step"], row["test"]) for row in rows] == [
        ("test", "tests/test_test.py::test_web"),
        ("cloud", "tests/test_cloud.py::test_pages"),
    ]


def test_what_fails_otherwise_is_red(checkout: Checkout) -> None:
    checkout.tests("e2e", CHANCE.format("kill"))  # a word of a subject
    checkout.ends("lint", "exit 2\n")
    checkout.ends("bench", "exit 2\n")
    checkout.ends("fuzz", "kill -9 $PPID\n")
    status, said = checkout.run()
    assert status == 1
    red = {name for name, word in table(said).items() if word.startswith("FAILED")}
    assert red == {"e2e", "lint", "bench", "fuzz"}, said
    assert "===== FAILED: " in said.splitlines()[-1]
    assert json.loads((checkout.root / "build/unsteady.json").read_text()) == []
