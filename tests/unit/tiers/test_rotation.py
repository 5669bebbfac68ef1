"""Twenty runs of `make box` see every step, forty each with both faults; files that have turns come in three days."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from box.rotation import COMMANDS, INSTALLER, RUNS, cells, groups
from kits.daily import files_of_the_day, how_many_in_turn, of_the_day, today

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs/testing.md"


def kind(step: str) -> str:
    return re.sub(r"-\d+$", "", step)


@pytest.mark.parametrize("first", [0, 739_000, 739_003])
@pytest.mark.parametrize("table", [INSTALLER, COMMANDS])
def test_twenty_days_see_every_step_and_forty_both_faults(table: dict[str, tuple[str, ...]], first: int) -> None:
    wanted = {(op, kind(step)) for op, steps in table.items() for step in steps}
    days = [cells(table, day=day) for day in range(first, first + 2 * RUNS)]
    once = {(op, kind(step)) for some in days[:RUNS] for op, step, _ in some}
    assert once == wanted
    twice = {(op, kind(step), fault) for some in days for op, step, fault in some}
    assert len(twice) == 2 * len(wanted)
    for some in days:
        assert {fault for _, _, fault in some} == {"kill", "cut"}
        assert len(some) == len(set(some))


def test_each_number_of_a_step_has_its_day() -> None:
    (files,) = (group for group in groups(INSTALLER["install"]) if group[0].startswith("after-swap"))
    days = RUNS * len(files)
    seen = {step for day in range(days) for op, step, _ in cells(INSTALLER, day=day) if op == "install"}
    assert seen >= set(files)


def test_the_document_says_how_many_a_run_has() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for table in (INSTALLER, COMMANDS):
        counts = {len(cells(table, day=day)) for day in range(RUNS)}
        total = sum(len(groups(steps)) for steps in table.values())
        assert f"`make box` takes {min(counts)} or {max(counts)} cells of {total}" in text


def test_so_many_days_take_every_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_FULL", raising=False)
    taken: list[int] = []
    for day in range(7, 10):
        monkeypatch.setenv("BOX_DAY", str(day))
        assert today() == day
        taken += of_the_day(range(10), parts=3)
    assert sorted(taken) == [*range(10)]
    monkeypatch.setenv("TEST_FULL", "1")
    assert of_the_day(range(10), parts=3) == [*range(10)]


def test_files_have_turns_and_each_sees_all_of_its_own_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_FULL", raising=False)
    monkeypatch.setenv("TEST_TURNS", "3")
    files = [f"test_{number}.py" for number in range(7)]
    seen: dict[str, set[str]] = {file: set() for file in files}
    for day in range(100, 109):
        monkeypatch.setenv("BOX_DAY", str(day))
        for file in files_of_the_day(files * 2):
            seen[file].update(of_the_day("abc", parts=3))
    assert all(items == {"a", "b", "c"} for items in seen.values())
    monkeypatch.delenv("TEST_TURNS")
    assert files_of_the_day(files) == {*files}


def test_what_takes_long_is_whole_where_its_file_has_one_day_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_FULL", raising=False)
    monkeypatch.delenv("TEST_TURNS", raising=False)
    assert how_many_in_turn(3, 100) == 3
    monkeypatch.setenv("TEST_TURNS", "3")
    assert how_many_in_turn(3, 100) == 100
    monkeypatch.setenv("TEST_TURNS", "1")
    monkeypatch.setenv("TEST_FULL", "1")
    assert how_many_in_turn(3, 100) == 100


def test_a_run_by_turns_takes_the_files_of_the_day_and_what_is_of_each_day(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text("def test_it():\n    pass\n")
    both = "import pytest\n\n@pytest.mark.daily\ndef test_it():\n    pass\n\ndef test_other():\n    pass\n"
    (tmp_path / "test_e.py").write_text(both)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-v"]
    command += ["--rootdir", str(tmp_path), "--confcutdir", str(ROOT / "tests"), "-p", "conftest", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TEST_TURNS": "3", "BOX_DAY": "300"}
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    passed = re.findall(r"test_(\w)\.py::(\w+) PASSED", ran.stdout)
    assert passed == [("a", "test_it"), ("d", "test_it"), ("e", "test_it")], ran.stdout + ran.stderr
    assert "TEST_TURNS=3 BOX_DAY=300" in ran.stdout
