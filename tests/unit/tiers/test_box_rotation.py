"""Twenty runs of `make box` see every step, forty each with both faults; what the documents say of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from box.rotation import COMMANDS, INSTALLER, RUNS, cells, groups
from kits.daily import of_the_day, today

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/testing.md"


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
