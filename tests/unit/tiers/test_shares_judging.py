"""When a share of a card is held: more fails at once, less is measured again; and the table that CI measures."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.reruns import StarvationError
from native.shareskit import (
    CASES,
    PAIR_CASES,
    PARTS,
    POINTS,
    TRIES,
    Row,
    Table,
    above_in_a_second,
    cells_of_the_day,
    judge,
    judge_each_second,
    reaches,
)
from native.sharestable import markdown, summary

if TYPE_CHECKING:
    from native.shareskit import Measure, MeasureSeconds

ROOT = Path(__file__).resolve().parents[3]


def tries_of(*values: list[float]) -> tuple[Measure, list[list[float]]]:
    """A measure whose tries come out as these; what is left of them."""
    left = list(values)
    return lambda: left.pop(0), left


def test_more_than_a_share_fails_at_once_and_no_good_try_after_it_counts() -> None:
    measure, left = tries_of([30.0, 62.1], [30.0, 60.0])
    with pytest.raises(pytest.fail.Exception, match="more than was given"):
        judge(measure, [30, 60])
    assert left == [[30.0, 60.0]]


def test_more_than_a_share_fails_after_tries_that_lacked() -> None:
    measure, _ = tries_of([20.0], [32.1], [30.0])
    with pytest.raises(pytest.fail.Exception, match="more than was given"):
        judge(measure, [30], lack=POINTS)


def test_what_lacks_is_measured_again() -> None:
    measure, left = tries_of([27.9], [28.1], [30.0])
    judge(measure, [30], lack=POINTS)
    assert left == [[30.0]]


def test_what_lacks_in_each_try_fails() -> None:
    measure, left = tries_of(*[[27.9]] * TRIES, [30.0])
    with pytest.raises(StarvationError, match="less than was given"):
        judge(measure, [30], lack=POINTS)
    assert left == [[30.0]]


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        ((9.0, 20.0), None),
        ((9.0, 11.0), StarvationError),
        ((33.0, 9.0), StarvationError),
        ((33.0, 40.0), pytest.fail.Exception),
    ],
)
def test_a_range_is_reached_in_one_measure(seen: tuple[float, ...], error: type[BaseException] | None) -> None:
    with pytest.raises(error) if error else nullcontext():
        reaches(seen, 12, 32)


@pytest.mark.parametrize("apart", [False, True])
def test_of_seconds_each_counts_by_itself(tmp_path: Path, *, apart: bool) -> None:
    measure, _ = tries_of([30.0, 20.0], [20.0, 30.0], [20.0, 30.0], [30.0, 20.0])
    table = Table(tmp_path / "shares.json")
    with nullcontext() if apart else pytest.raises(StarvationError, match="less than was given"):
        judge(measure, [30, 30], lack=POINTS, apart=apart, note=table.note("second", {}, [30, 30]))
    assert len(table.rows[0].got) == (2 if apart else TRIES)


def test_beside_other_tests_a_part_of_a_share_is_enough() -> None:
    measure, _ = tries_of([12.1])
    judge(measure, [30], lack=None)
    measure, _ = tries_of(*[[11.9]] * TRIES)
    with pytest.raises(StarvationError, match="less than was given"):
        judge(measure, [30], lack=None)


@pytest.mark.parametrize(("got", "is_held"), [(58.1, True), (57.9, False)])
def test_nobody_gets_what_the_program_cannot_use(tmp_path: Path, got: float, *, is_held: bool) -> None:
    measure, _ = tries_of(*[[got]] * TRIES)
    free, _ = tries_of(*[[60.0]] * TRIES)
    table = Table(tmp_path / "shares.json")
    with nullcontext() if is_held else pytest.raises(StarvationError, match="less than was given"):
        judge(measure, [70], lack=POINTS, free=free, note=table.note("share", {}, [70]))
    assert [(row.got, row.able) for row in table.rows] == [([[got]] * (1 if is_held else TRIES), [60.0])]


@pytest.mark.parametrize(
    ("seconds", "is_above"),
    [
        ([70, 72, 70], False),
        ([70, 72.1, 70], True),
        ([67, 74.9, 70], False),  # the three that lacked
        ([67, 70, 72.1], True),  # not two seconds later
        ([40, 75.4, 70], False),
        ([40, 75.6, 70], True),  # no more than 50 ms of 70 percent
        ([68, 74, 72.1], True),  # and not twice
    ],
)
def test_a_second_may_have_what_the_one_before_it_lacked(seconds: list[float], *, is_above: bool) -> None:
    assert above_in_a_second(seconds, 70) is is_above


def seconds_of(*values: list[list[float]]) -> tuple[MeasureSeconds, list[list[list[float]]]]:
    """A measure whose tries come out as these; what is left of them."""
    left = list(values)
    return lambda: left.pop(0), left


def nothing_free() -> list[float]:
    raise AssertionError("nobody lacks")


STEADY = [[30.0, 30.0], [60.0, 60.0]]


def test_a_container_with_more_on_average_of_its_seconds_fails_at_once() -> None:
    measure, left = seconds_of([[30.0, 30.0], [63.0, 61.2]], STEADY)
    with pytest.raises(pytest.fail.Exception, match="more than was given"):
        judge_each_second(measure, [30, 60], free=nothing_free, one_by_one=True)
    assert left == [STEADY]


@pytest.mark.parametrize(
    ("first", "one_by_one", "tries"),
    [
        ([[30.0, 30.0], [59.0, 62.1]], True, 1),  # what the second before lacked comes on top
        ([[30.0, 30.0], [60.0, 62.1]], True, 2),
        ([[30.0, 30.0], [60.0, 62.1]], False, 1),
        ([[27.8, 30.0], [57.9, 60.0]], True, 1),
        ([[25.8, 30.0], [60.0, 60.0]], True, 2),  # off by 2.1 on average
        ([[26.2, 30.0], [60.0, 60.0]], True, 1),
        ([[25.8, 30.2], [60.0, 60.0]], False, 1),
    ],
)
def test_a_second_that_is_off_is_measured_again(first: list[list[float]], *, one_by_one: bool, tries: int) -> None:
    measure, _ = seconds_of(first, STEADY)
    free = lambda: [30.0, 60.0]  # noqa: E731
    seen, _ = judge_each_second(measure, [30, 60], free=free, one_by_one=one_by_one, error=POINTS)
    assert len(seen) == tries


@pytest.mark.parametrize(("able", "is_held"), [(57.0, True), (60.0, False)])
def test_seconds_lack_nothing_that_the_program_cannot_use(*, able: float, is_held: bool) -> None:
    measure, _ = seconds_of(*[[[30.0, 30.0], [56.0, 56.0]]] * TRIES)
    with nullcontext() if is_held else pytest.raises(StarvationError, match="less than was given"):
        seen = judge_each_second(measure, [30, 60], free=lambda: [0.0, able], one_by_one=True, error=POINTS)
        assert seen == ([[[30.0, 30.0], [56.0, 56.0]]], [0.0, able])


@pytest.mark.parametrize("cases", [CASES, PAIR_CASES, PAIR_CASES[:4]])
def test_a_week_of_ci_measures_the_whole_table_and_each_day_all_kernels(
    cases: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_FULL", raising=False)
    monkeypatch.delenv("TEST_TURNS", raising=False)
    taken: list[tuple[object, ...]] = []
    for day in range(PARTS):
        monkeypatch.setenv("BOX_DAY", str(day))
        some = cells_of_the_day(cases)
        assert some
        taken += some
    assert {*map(str, taken)} == {*map(str, cases)}
    assert len(taken) == max(len(cases), PARTS)


def test_ci_measures_shares_when_nothing_else_runs_any_more() -> None:
    steps = (ROOT / ".ci/run").read_text(encoding="utf-8")
    found = re.search(r"step shares \d+ env TEST_TURNS=1 make (shares) #", steps)
    assert found
    assert steps.index("\n    joined ") < found.start() < steps.index("    step bench ")
    told = subprocess.run(["make", "-n", found[1]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(r"-m pytest -m shares .*test_limiter_compute\.py .*test_limiter_competing\.py", told)


def test_the_table_shows_the_last_try_and_what_is_out_of_it(tmp_path: Path) -> None:
    table = Table(tmp_path / "new/shares.json")
    kernel = {"ns": 100_000, "depth": 1}
    table.add(Row("share", {"core": 70, "processes": 3, **kernel}, [70], [60.0], [[40.0], [59.0]]))
    table.add(Row("share", {"core": 50, "processes": 3, **kernel}, [50], [0.0], [[50.04]]))
    table.add(Row("second", {"core": 50, "processes": 3, **kernel}, [50, 50], [0.0, 0.0], [[49.0, 52.1]]))
    table.add(Row("competing", {"pair": (30, 60), **kernel}, [30, 60], [0.0, 0.0], [[30.0, 59.5]]))
    table.add(Row("competing second", {"pair": (30, 60), "core": 30, **kernel}, [30] * 2, [0.0] * 2, [[29.0, 31.5]]))
    table.add(Row("competing second", {"pair": (30, 60), "core": 60, **kernel}, [60] * 2, [59.0] * 2, [[57.0, 59.0]]))
    rows = json.loads(table.path.read_text())
    text = markdown(rows)
    line = "| 0.1 ms, one at a time, three | **59.0** / 60.0 | 50.0 (49.0 to **52.1**) |"
    assert f"| share | 70 | 50 |\n|---|---|---|\n{line}" in text
    assert "| competing | 30 + 60 |\n|---|---|\n| 0.1 ms, one at a time | 30.0, 59.5 |" in text
    seconds = "1.2 (29.0 to 31.5), 1.0 (**57.0** / 59.0 to 59.0)"
    assert f"| competing second | 30 + 60 |\n|---|---|\n| 0.1 ms, one at a time | {seconds} |" in text
    assert summary(rows).splitlines() == [
        "6 cells, 1 of them measured more than once",
        "share: 2 cells, at most +0.04 points above and 1.00 below",
        "second: 1 cells, at most +2.10 points above and 1.00 below",
        "competing: 1 cells, at most +0.00 points above and 0.50 below",
        "competing second: 2 cells, at most +1.50 points above and 2.00 below",
    ]
