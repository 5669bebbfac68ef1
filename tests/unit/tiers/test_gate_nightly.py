"""What `make nightly` runs, in which order, and what is remembered of it and of `.ci/run`."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gate.memory import read_seen, write_seen
from gate.nightly import oldest_first, run_parts, table
from gate.parts import PARTS, TURNS, Part, rows_of, seen_by_ci
from gate.steps import read_steps

ROOT = Path(__file__).resolve().parents[3]
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")
DAY = dt.datetime(2031, 4, 5, 6, 7, tzinfo=dt.UTC)
E2E, LINT = (next(part for part in PARTS if part.name == name) for name in ("e2e", "lint"))


def test_ci_and_the_night_know_the_same_steps_and_turns() -> None:
    steps = set(re.findall(r"^\s+(?:step|logged) (\w+) \d+", CI, re.MULTILINE))
    assert steps == {part.name for part in PARTS if part.turns}
    assert f"TEST_TURNS=${{TEST_TURNS:-{TURNS}}}" in CI
    turned = set(re.findall(r'(?:step|logged) (\w+) \d+ env "\$TURNS"', CI))
    assert turned == {part.name for part in PARTS if part.turns == TURNS}
    targets = subprocess.run(["make", "-pnq"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert [part for part in PARTS if f"\n{part.command.split()[1]}:" not in targets] == []


def test_every_step_of_a_lane_is_joined() -> None:
    logged = set(re.findall(r"^\s+logged (\w+) \d+", CI, re.MULTILINE))
    joined = re.search(r"^\s+joined ([a-z0-9 ]+)$", CI, re.MULTILINE)
    assert joined
    assert logged == set(joined[1].split())


def test_what_failed_runs_again_after_lanes_and_shares_and_the_table_is_last() -> None:
    texts = ("joined box", "step shares", "gate rerun", "step bench", "gate summary")
    places = [CI.index(f"\n    {text}") for text in texts]
    assert places == sorted(places)
    assert CI[places[-1] :].count("\n    ") == 1


@pytest.mark.parametrize(
    ("name", "turns", "seen"),
    [
        ("lint", TURNS, {"lint"}),
        ("e2e", TURNS, {*rows_of("e2e", TURNS)}),
        ("shares", TURNS, {*rows_of("shares", 7)}),
        ("unknown", TURNS, {"unknown"}),
    ],
)
def test_days_see_all_turns(name: str, turns: int, seen: set[str]) -> None:
    assert {row for day in range(40, 47) for row in seen_by_ci(name, day=day, turns=turns)} == seen


def test_a_run_without_turns_sees_all_and_one_of_other_turns_counts_for_none() -> None:
    assert seen_by_ci("e2e", day=3, turns=1) == rows_of("e2e", TURNS)
    assert seen_by_ci("e2e", day=3, turns=TURNS + 1) == []


def test_what_was_last_seen_when(tmp_path: Path) -> None:
    path = tmp_path / "state/seen.json"
    assert write_seen(path, {"lint": "passed", f"e2e 1 of {TURNS}": "passed"}, DAY) == ""
    assert write_seen(path, {"lint": "failed"}, DAY + dt.timedelta(days=1)) == ""
    head, lint, first, second, *_ = table(read_seen(path), (LINT, E2E))
    assert head.split() == ["part", "last", "passed", "last", "run", "result"]
    assert lint.split() == ["lint", "2031-04-05T06:07+00:00", "2031-04-06T06:07+00:00", "failed"]
    assert first.split()[4:] == ["2031-04-05T06:07+00:00", "2031-04-05T06:07+00:00", "passed"]
    assert second.split()[4:] == ["never", "never", "not", "run"]


def test_what_was_not_seen_for_longest_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    write_seen(path, dict.fromkeys(rows_of("e2e", TURNS)[1:], "passed"), DAY)
    assert oldest_first(read_seen(path), (E2E, LINT)) == [E2E, LINT]
    write_seen(path, {rows_of("e2e", TURNS)[0]: "passed"}, DAY)
    assert oldest_first(read_seen(path), (E2E, LINT)) == [LINT, E2E]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert write_seen(tmp_path / "state/seen.json", {"lint": "passed"}, DAY).startswith("cannot write")


def test_parts_are_run_as_steps(tmp_path: Path) -> None:
    parts = [Part("good", "true", 1), Part("bad", "sh -c 'echo $TEST_TURNS; exit 3'", 1, env=(("TEST_TURNS", "1"),))]
    run_parts(tmp_path, parts)
    assert [(step.name, step.status) for step in read_steps(tmp_path)] == [("good", 0), ("bad", 3)]
    assert (tmp_path / "build/bad.log").read_text() == "1\n"


def gate(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "EDGEGPU_GATE_STATE": str(state)}
    return subprocess.run([sys.executable, "-m", "gate", *words], env=env, capture_output=True, text=True, check=False)


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("lint:\n\t@true\ndemo:\n\t@false\n")
    ran = gate("--root", str(tmp_path), "nightly", "lint", "demo", state=tmp_path / "state")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "red: demo: it failed again, alone" in ran.stdout
    listed = gate("seen", state=tmp_path / "state").stdout
    assert re.search(r"^lint +20\S+ +20\S+ +passed$", listed, re.MULTILINE)
    assert re.search(r"^demo +never +20\S+ +failed$", listed, re.MULTILINE)
    assert listed in ran.stdout
    wrong = gate("nightly", "nothing", state=tmp_path)
    assert (wrong.returncode, "there is no part nothing: lint, bundle" in wrong.stderr) == (2, True)
