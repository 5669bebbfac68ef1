"""The second run of failed tests: toy trees of tests through our conftest.py, judged by `gate rerun` and `summary`."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gate.steps import Failure, Session, Step, why_it_stays_red
from kits.reruns import SUBJECTS, subjects_of

ROOT = Path(__file__).resolve().parents[3]
TODAY = dt.datetime.now(tz=dt.UTC)  # the tool reads the clock
PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin")  # the others take a second to load
CHANCE = """
from pathlib import Path
import pytest

def first_time(name):
    mark = Path(__file__).parent / f"{name}.ran"
    if mark.exists():
        return False
    mark.touch()
    return True
"""
UNSTEADY = "def test_{0}():\n    assert not first_time('{0}'), 'the port {0} was taken'\n"
STEADY = "def test_good():\n    pass\n"
BROKEN = "def test_broken():\n    assert False, 'always'\n"


class Toy:
    """A checkout with tests of its own, and the state of earlier runs beside it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state = folder / "checkout", folder / "state"
        (self.root / "tests").mkdir(parents=True)
        (self.root / "build/gate").mkdir(parents=True)
        self.steps = self.root / "build/gate/steps"
        self.steps.touch()
        options = ["-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", self.root, "-p", "conftest"]
        self.pytest = [sys.executable, "-m", "pytest", *map(str, options), "--confcutdir", str(self.root)]

    def env(self, **more: str) -> dict[str, str]:
        left = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "BOX_"))}
        path = f"{ROOT / 'tests'}:{ROOT / 'tools'}"
        few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(PLUGINS)}
        return {**left, **few, "PYTHONPATH": path, "EDGEGPU_GATE_STATE": str(self.state), **more}

    def add(self, name: str, *parts: str) -> None:
        path = self.root / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CHANCE + "\n".join(parts), encoding="utf-8")

    def step(self, name: str = "toy", *words: str, status: int | None = None, **env: str) -> None:
        """Run all tests as a step does, and note how it ended."""
        more = {"TEST_RESULTS": str(self.root / f"build/gate/{name}.jsonl"), **env}
        ran = self.run([*self.pytest, *words, "tests"], **more)
        assert ran.returncode < 5, ran.stdout + ran.stderr
        with self.steps.open("a") as file:
            file.write(f"{name} {ran.returncode if status is None else status} 7 20\n")

    def run(self, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.root, env=self.env(**env), capture_output=True, text=True, check=False)

    def judged(self, **env: str) -> tuple[int, str]:
        """Have failed tests run once more; return the status of the run, and its closing lines."""
        gate = [sys.executable, "-m", "gate", "--pytest", " ".join(self.pytest)]
        rerun = self.run([*gate, "rerun"], **env)
        assert (rerun.returncode, rerun.stderr) == (0, "")
        closing = self.run([*gate, "summary", "the toy"], **env)
        assert closing.stderr == ""
        return closing.returncode, closing.stdout

    def unsteady(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.root / "build/unsteady.json").read_text())
        return rows


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def test_what_fails_once_and_passes_alone_is_unsteady_and_named(toy: Toy) -> None:
    toy.add("test_ports.py", STEADY, UNSTEADY.format("web"))
    toy.step()
    status, said = toy.judged()
    assert status == 0, said
    (row,) = toy.unsteady()
    assert (row["test"], row["step"]) == ("tests/test_ports.py::test_web", "toy")
    assert row["cause"].startswith("AssertionError: the port web was taken")
    assert "the port web was taken" in (toy.root / row["log"]).read_text()
    assert abs(dt.datetime.fromisoformat(row["when"]) - TODAY) < dt.timedelta(hours=1)
    assert "toy            7 s  passed, 1 unsteady     1 passed, 1 failed" in said
    assert f"unsteady: {row['test']} (toy): {row['cause']}\n          its log: {row['log']}\n" in said
    assert said.endswith("===== passed: 1 passed, 1 unsteady (at most 3), 0 skipped, 1 steps =====\n")


def test_a_run_without_failures_says_so(toy: Toy) -> None:
    toy.add("test_ports.py", STEADY)
    toy.step()
    assert toy.judged()[1].endswith("===== passed: 1 passed, 0 unsteady (at most 3), 0 skipped, 1 steps =====\n")
    assert toy.unsteady() == []


def test_what_fails_twice_is_red(toy: Toy) -> None:
    toy.add("test_ports.py", STEADY, BROKEN, UNSTEADY.format("web"))
    toy.step()
    status, said = toy.judged()
    assert status == 1
    assert "red: toy: tests/test_ports.py::test_broken failed again, alone: AssertionError: always" in said
    assert [row["test"] for row in toy.unsteady()] == ["tests/test_ports.py::test_web"]
    assert said.endswith("===== FAILED: toy: 1 failed, 1 passed, 1 unsteady (at most 3), 0 skipped, 1 steps =====\n")


@pytest.mark.parametrize(("number", "status"), [(3, 0), (4, 1)])
def test_at_most_three_may_be_unsteady(toy: Toy, number: int, status: int) -> None:
    for each in range(number):
        toy.add(f"test_ports{each}.py", UNSTEADY.format(f"web{each}"))
    toy.step("toy", "-n", "2")
    seen, said = toy.judged()
    assert (seen, len(toy.unsteady())) == (status, number), said
    assert ("red: 4 unsteady tests, at most 3 may be" in said) is (status == 1)


NEVER = {
    "property/test_ledger_machine.py": UNSTEADY.format("a"),
    "e2e/test_isolation.py": UNSTEADY.format("b"),
    "unit/sync/test_signing.py": UNSTEADY.format("c"),
    "box/test_commands.py": UNSTEADY.format("d"),
    "chaos/test_moves.py": UNSTEADY.format("e"),
    "e2e/test_churn.py": UNSTEADY.format("f"),
    "test_agent.py": UNSTEADY.format("what_runs_over_a_restart"),
    "test_marked.py": "@pytest.mark.no_rerun('it counts money')\n" + UNSTEADY.format("g"),
}


@pytest.mark.parametrize("words", [(), ("-n", "1")])
def test_some_subjects_get_no_second_run(toy: Toy, words: tuple[str, ...]) -> None:
    for name, text in NEVER.items():
        toy.add(name, text)
    toy.step("toy", *words)
    status, said = toy.judged()
    assert (status, toy.unsteady()) == (1, [])
    red = re.findall(r"^red: toy: tests/(\S+)::\w+ is never run again \(.+\)$", said, re.MULTILINE)
    assert sorted(red) == sorted(NEVER)
    assert list((toy.root / "build/gate/unsteady").iterdir()) == []


def test_a_second_run_takes_none_of_them_by_itself(toy: Toy) -> None:
    toy.add("test_ledger.py", STEADY)
    ran = toy.run([*toy.pytest, "tests"], TEST_RERUN="1")
    assert "1 deselected" in ran.stdout, ran.stdout


def test_a_test_whose_process_was_lost_is_red(toy: Toy) -> None:
    toy.add("test_ports.py", "import os\n", "def test_it():\n    if first_time('it'):\n        os._exit(3)\n")
    toy.step("toy", "-n", "1")
    status, said = toy.judged()
    assert (status, toy.unsteady()) == (1, [])
    assert "its process was lost" in said or "its tests were stopped" in said


@pytest.mark.parametrize(
    ("parts", "words", "status", "why"),
    [
        (["import nothing_of_this_name"], (), None, "pytest ended with status 2"),
        ([UNSTEADY.format("it")], ("-x",), None, "its tests were stopped"),
        ([STEADY], (), 2, "it failed beside its tests"),
        (["import os\n", "def test_it():\n    os._exit(2)\n"], (), None, "its tests were stopped"),
    ],
)
def test_a_step_that_dies_stays_red(
    toy: Toy, parts: list[str], words: tuple[str, ...], status: int | None, why: str
) -> None:
    toy.add("test_ports.py", *parts)
    toy.step("toy", *words, status=status)
    seen, said = toy.judged()
    assert (seen, toy.unsteady()) == (1, [])
    assert f"red: toy: {'tests could not be collected' if 'import no' in parts[0] else why}" in said


@pytest.mark.parametrize(
    ("status", "why"), [(124, "it was stopped after 20 min"), (137, "it ended with status 137"), (2, "")]
)
def test_a_step_that_was_killed_stays_red_though_its_tests_had_ended(status: int, why: str) -> None:
    failure = Failure("tests/test_ports.py::test_web", "the port was taken", "", no_rerun="")
    session = Session(seed=1, env={}, failures=(failure,), status=1)
    assert why_it_stays_red(Step("toy", status, 7, 20, (session,))) == why


def test_a_step_without_results_stays_red_and_says_what_has_failed(toy: Toy) -> None:
    toy.steps.write_text("fuzz 2 7 20\nlint 2 7 20\n")
    (toy.root / "build/lint.log").write_text("ok      mypy\nFAILED  shellcheck\n    a line\nFAILED  sizes of files\n")
    (toy.root / "build/fuzz.log").write_text("200 messages\nlost 1\n\nmake: *** [Makefile:9: fuzz] Error 1\n")
    status, said = toy.judged()
    assert status == 1
    assert "red: fuzz: its tests have left no results; its last lines: 200 messages | lost 1\n" in said
    assert "red: lint: shellcheck; sizes of files\n" in said


@pytest.mark.parametrize(("second", "status"), [("pass", 0), ("raise StarvationError('20 of 30 percent')", 1)])
def test_starvation_is_run_again_whatever_the_subject(toy: Toy, second: str, status: int) -> None:
    """A busy machine gives a container less than its share, too: more than that is never run again."""
    starved = "    if first_time('it'):\n        raise StarvationError('12 of 30 percent')\n"
    toy.add("test_isolation.py", f"from kits.reruns import StarvationError\n\ndef test_it():\n{starved}    {second}\n")
    toy.step("toy", "-n", "1")
    assert toy.judged()[0] == status
    causes = ["kits.reruns.StarvationError: 12 of 30 percent"] if not status else []
    assert [row["cause"] for row in toy.unsteady()] == causes


def test_a_step_that_fails_after_the_second_runs_stays_red(toy: Toy) -> None:
    toy.add("test_ports.py", STEADY)
    toy.step()
    assert toy.judged()[0] == 0
    with toy.steps.open("a") as file:
        file.write("bench 2 7 20\n")
    closing = toy.run([sys.executable, "-m", "gate", "summary", "the toy"])
    assert closing.returncode == 1
    assert "bench          7 s  FAILED (2)" in closing.stdout


def test_examples_are_drawn_again_by_the_seed_of_the_first_run(toy: Toy) -> None:
    """A fault that one example in thousands shows is no unsteady test: its second run draws the same."""
    draws = """
from hypothesis import given, settings, strategies

@settings(database=None, max_examples=20)
@given(strategies.integers(0, 2**64))
def test_drawn(number):
    assert number % 8 != 3 or number < 1000
"""
    toy.add("test_numbers.py", draws)
    for seed in range(20):
        toy.step("toy", f"--hypothesis-seed={seed}")
        *_, last = toy.steps.read_text().split("\n")[:-1]
        if last.split()[1] != "0":
            break
    toy.steps.write_text(last + "\n")
    assert (toy.judged()[0], toy.unsteady()) == (1, [])


def test_the_second_run_has_what_chose_the_first(toy: Toy) -> None:
    """Its turn is over: one file of three is today's, and the second run finds the same test all the same."""
    reads = "import os\n\ndef test_it():\n    assert not first_time('it')\n    assert os.environ['TEST_TURNS'] == '3'\n"
    for name in "abc":
        toy.add(f"test_{name}.py", reads)
    toy.step("toy", TEST_TURNS="3", BOX_DAY="301")
    status, said = toy.judged()
    assert (status, [row["test"] for row in toy.unsteady()]) == (0, ["tests/test_b.py::test_it"]), said


def test_pytest_within_a_test_writes_no_results_of_ours(toy: Toy) -> None:
    toy.add("test_ports.py", "import os\n", "def test_it():\n    assert 'TEST_RESULTS' not in os.environ\n")
    toy.step("toy", "-n", "1")
    toy.step("again")
    assert toy.judged()[0] == 0


def earlier(toy: Toy, test: str, **ago: int) -> None:
    toy.state.mkdir(exist_ok=True)
    row = {"test": test, "when": (TODAY - dt.timedelta(**ago)).isoformat()}
    with (toy.state / "unsteady.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def unsteady_demo(toy: Toy) -> None:
    (toy.root / "Makefile").write_text("demo:\n\t@echo again\n")
    toy.steps.write_text("demo 2 7 15\n")


@pytest.mark.parametrize(("days", "status"), [(8, 0), (6, 1)])
def test_the_same_test_twice_within_a_week_is_red(toy: Toy, days: int, status: int) -> None:
    earlier(toy, "tests/test_ports.py::test_web[other]", days=days)
    toy.add("test_ports.py", UNSTEADY.format("web"))
    toy.step()
    seen, said = toy.judged()
    assert (seen, "test_web was unsteady on" in said) == (status, status == 1), said
    rows = [json.loads(line) for line in (toy.state / "unsteady.jsonl").read_text().splitlines()]
    assert [row["test"] for row in rows][1:] == ["tests/test_ports.py::test_web"]


def test_two_runs_of_one_day_know_each_other(toy: Toy) -> None:
    unsteady_demo(toy)
    assert [toy.judged()[0], toy.judged()[0]] == [0, 1]


def test_a_missing_memory_is_named(toy: Toy) -> None:
    toy.steps.write_text("lint 0 7 20\n")
    assert f"note: no memory of earlier runs: {toy.state}/unsteady.jsonl is new" in toy.judged()[1]
    assert "no memory" not in toy.judged()[1]


def test_a_broken_memory_is_named_and_the_rest_of_it_counts(toy: Toy) -> None:
    toy.state.mkdir()
    (toy.state / "unsteady.jsonl").write_text('{"test": "half of a li\n')
    earlier(toy, "make demo", days=1)
    unsteady_demo(toy)
    status, said = toy.judged()
    assert status == 1
    assert "unsteady.jsonl:1 is no record and is passed over" in said


def test_a_memory_that_cannot_be_written_is_named(toy: Toy) -> None:
    toy.state.write_text("a file where the folder should be")
    toy.steps.write_text("lint 0 7 20\n")
    status, said = toy.judged()
    assert status == 0
    assert "note: the next run will not know of this one: cannot write" in said


@pytest.mark.parametrize(("second", "status"), [("exit 0", 0), ("exit 1", 1)])
def test_the_demo_is_run_again_as_one_unit(toy: Toy, second: str, status: int) -> None:
    (toy.root / "Makefile").write_text(f"demo:\n\t@echo again; {second}\n")
    (toy.root / "build/demo.log").write_text("the second pod is Pending\nmake: *** [Makefile:3: demo] Error 1\n")
    toy.steps.write_text("demo 2 7 15\n")
    seen, said = toy.judged()
    assert seen == status, said
    assert [row["test"] for row in toy.unsteady()] == (["make demo"] if status == 0 else [])
    assert "the second pod is Pending" in said


# --- the subjects


COVERED = {
    "ledger": ["unit/core/test_ledger.py", "property/test_ledger_machine.py", "unit/plugin/test_allocator.py"],
    "isolation": [
        *("e2e/test_isolation.py", "e2e/test_live_limits.py", "native/test_limiter_memory.py", "e2e/test_mps.py"),
        *("native/test_limiter_compute.py", "integration/plugin/test_isolation_node.py"),
    ],
    "signing": ["unit/sync/test_signing.py", "property/test_sync_signing.py", "unit/sync/test_replay_guard.py"],
    "power cuts": ["box/test_faults.py", "box/test_commands.py", "chaos/test_recover_cuts.py"],
    "chaos": ["chaos/test_chaos.py", "fuzz/test_fuzz.py", "chaos/test_plugin_machine.py"],
    "restarts": ["e2e/test_restarts.py", "e2e/test_reboot.py", "integration/agent/test_worker_kill.py"],
}


@pytest.mark.parametrize(("subject", "path"), [(subject, path) for subject, paths in COVERED.items() for path in paths])
def test_the_subjects_cover_the_tests_of(subject: str, path: str) -> None:
    assert (ROOT / "tests" / path).is_file()
    assert subject in subjects_of(path)


def test_each_subject_has_a_reason_and_tests() -> None:
    paths = [path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    seen = {subject for path in paths for subject in subjects_of(path)}
    assert seen | {"churn"} == set(SUBJECTS)
    assert all(subject.reason for subject in SUBJECTS.values())
    assert subjects_of("e2e/test_churn.py") == ["churn"]
    assert [path for path in paths if path.startswith(("chaos/", "fuzz/")) and "chaos" not in subjects_of(path)] == []


def test_most_tests_may_be_run_again() -> None:
    """A rule that left out everything would be no rule."""
    paths = [path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert len([path for path in paths if subjects_of(path)]) < len(paths) / 2
    assert subjects_of("integration/cloud/console/test_limits_browser.py", "test_a_limit_is_set[kill]") == []
