"""When a figure passes its limit: the best of three runs decides; and how the script ends by it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.bench_cloud import limit_for_all_s
from bench.figures import Figure, figure
from bench.judging import PROMISED, RUNS, best_of, is_over, line, on_a_slow_machine, recovery
from bench.run import main
from bench.slowness import MOST, slowness

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]


def runs_of(*values: float) -> tuple[Callable[[], list[Figure]], list[float]]:
    """A part whose one figure comes out as these, run after run; what is left of them."""
    left = list(values)
    return lambda: [figure("a", [left.pop(0)], unit="ms", limit=10), figure("b", [1.0], unit="ms", limit=10)], left


@pytest.mark.parametrize(("boxes", "limit_s"), [(500, 3.0), (1_000, 3.0), (3_000, 4.5), (10_000, 15.0), (20_000, 15.0)])
def test_a_limit_for_fewer_boxes_has_less_time(boxes: int, limit_s: float) -> None:
    assert limit_for_all_s(boxes) == limit_s


@pytest.mark.parametrize(
    ("values", "slack", "seen", "over"),
    [
        ((9.0, 1.0), 1, [9.0], False),
        ((11.0, 9.0, 1.0), 1, [11.0, 9.0], False),
        ((13.0, 11.0, 12.0, 1.0), 1, [13.0, 11.0, 12.0], True),
        ((19.0, 1.0), 2, [19.0], False),
        ((21.0, 22.0, 23.0, 1.0), 2, [21.0, 22.0, 23.0], True),
    ],
)
def test_the_best_of_three_decides(values: tuple[float, ...], slack: float, seen: list[float], *, over: bool) -> None:
    part, left = runs_of(*values)
    rows, runs = best_of(part, slack=slack)
    assert runs == {"a": seen, "b": [1.0] * len(seen)}
    assert len(left) == len(values) - len(seen)
    assert [row["p99"] for row in rows] == [min(seen), 1.0]
    assert [is_over(row, slack=slack) for row in rows] == [over, False]
    assert ("OVER" in line(rows[0], seen, slack=slack)) is over
    assert all(f"{value:.3f}" in line(rows[0], seen, slack=slack) for value in seen)


@pytest.mark.parametrize(
    ("unit", "slownesses", "over"),
    [("ms", [1.0, 1.2], False), ("ms", [1.2, 1.0], False), ("ms", [1.0, 1.0], True), ("MiB", [1.2, 1.2], True)],
)
def test_a_slow_machine_has_more_time_and_no_more_memory(unit: str, slownesses: list[float], *, over: bool) -> None:
    (row,) = on_a_slow_machine(lambda: [figure("a", [23.0], unit=unit, limit=10)], lambda: slownesses.pop(0))
    assert (is_over(row, slack=2), slownesses) == (over, [])
    assert ("1.2 times as slow" in line(row, [23.0], slack=2)) is (not over)


def test_this_machine_is_no_faster_than_the_reference_and_slow_within_bounds() -> None:
    assert 1 <= slowness() <= MOST


def test_a_figure_that_shows_how_something_grows_is_said_and_not_judged() -> None:
    runs = []

    def measure() -> list[Figure]:
        runs.append(1)
        return [
            {**figure("grows", [99.0], unit="s", limit=10), "judged": False},
            figure("a", [1.0], unit="s", limit=10),
        ]

    rows, _ = best_of(measure, slack=1)
    assert len(runs) == 1
    assert [is_over(row, slack=1) for row in rows] == [False, False]
    assert ": not judged (" in line(rows[0], [99.0], slack=1)


def test_what_is_only_said_is_measured_once() -> None:
    left = [12.0, 9.0]

    def again() -> list[Figure]:
        return [figure("a", [left.pop(0)], unit="s", limit=10)]

    rows, runs = best_of(
        lambda: [{**figure("grows", [99.0], unit="s", limit=1), "judged": False}, *again()], slack=1, again=again
    )
    assert (runs, [row["p99"] for row in rows]) == ({"grows": [99.0], "a": [12.0, 9.0]}, [99.0, 9.0])


WAITED: dict[str, Any] = {"name": "w_s", "unit": "s", "median": 3.0, "p95": 9.0, "max": 20.0, "limit": 15.0, "runs": 40}


@pytest.mark.parametrize(
    ("more", "slack", "over"),
    [
        ({}, 1, False),
        ({"p95": 15.5}, 1, True),
        ({"p95": 15.5}, 2, False),
        ({"p95": 15.5, "runs": 39}, 1, False),  # too few say nothing
        ({"most": 30.0}, 1, False),
        ({"most": 30.0, "max": 30.5}, 1, True),
        ({"most": 30.0, "max": 61.0}, 2, True),
        ({"typical": 5.0, "median": 5.5}, 1, True),
        ({"typical": 5.0, "median": 5.5}, 2, False),
    ],
)
def test_a_recovery_time_is_judged_over_many_samples(more: dict[str, Any], slack: float, *, over: bool) -> None:
    told, found = recovery(WAITED | more, slack=slack)
    assert found is over
    assert ("not judged" in told) is (more.get("runs") == 39)


@pytest.mark.parametrize(("median", "over"), [(2.0, False), (2.1, True)])
def test_a_typical_time_is_judged_over_few_samples_too(median: float, *, over: bool) -> None:
    few = {"runs": 3, "typical": 2.0, "median": median, "p95": 99.0, "max": 99.0}
    told, found = recovery(WAITED | few, slack=1)
    assert (found, "OVER" in told) == (over, over)
    assert recovery(WAITED | few | {"most": 98.0}, slack=1)[1]


# --- the script


def waited(runs: int = 40, p95: float = 9.0, longest: float = 20.0) -> dict[str, Any]:
    return WAITED | {"name": PROMISED, "runs": runs, "p95": p95, "max": longest, "most": 30.0}


def script(
    folder: Path, *words: str, value: float = 1.0, e2e: list[dict[str, Any]] | None = None, slow: float = 1.0
) -> int:
    """Run the script's main on one part with one figure of the limit 10; return its exit status."""
    if e2e is not None:
        (folder / "e2e.json").write_text(json.dumps(e2e))
    part = {"part": lambda _: [figure("a", [value], unit="ms", limit=10), figure("b", [1.0], unit="ms", limit=10)]}
    return main(["--out", str(folder), *words], part, lambda: slow)


@pytest.mark.parametrize(
    ("value", "words", "status"),
    [
        (10.0, (), 0),
        (10.5, (), 1),
        (10.5, ("part",), 1),
        (10.5, ("e2e",), 0),  # that part is not asked for
        (20.0, ("--slack", "2"), 0),
        (20.5, ("--slack", "2"), 1),
    ],
)
def test_the_script_ends_with_1_where_a_figure_is_over_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float, words: tuple[str, ...], status: int
) -> None:
    assert script(tmp_path, *words, value=value) == status
    said = capsys.readouterr().out
    assert ("OVER" in said) is bool(status)
    if "e2e" not in words:
        a, b = json.loads((tmp_path / "part.json").read_text())
        assert (a["p99"], a["p99s"], b["p99"]) == (value, [value] * (RUNS if status else 1), 1.0)


@pytest.mark.parametrize(("words", "status"), [((), 1), (("--slack", "2"), 0), (("--slack", "1"), 1)])
def test_the_script_gives_a_slow_machine_more_time_where_there_is_slack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int
) -> None:
    assert script(tmp_path, *words, value=20.5, slow=1.1) == status
    assert ("\nFAILED  over the limit, or not measured: a\n" in capsys.readouterr().out) is bool(status)


@pytest.mark.parametrize(
    ("e2e", "said"),
    [
        (None, f"{PROMISED}: 0 samples, 40 are needed"),
        ([], f"{PROMISED}: 0 samples, 40 are needed"),
        ([WAITED], f"{PROMISED}: 0 samples, 40 are needed"),  # another one's samples
        ([waited(39)], f"{PROMISED}: 39 samples, 40 are needed"),
    ],
)
def test_a_recovery_time_that_nobody_measured_is_told_and_a_fault_where_e2e_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], e2e: list[dict[str, Any]] | None, said: str
) -> None:
    assert script(tmp_path, "e2e", e2e=e2e) == 0
    assert f"{said} (make e2e measures it): not judged\n" in capsys.readouterr().out
    assert script(tmp_path, "--e2e-ran", "e2e", e2e=e2e) == 1
    assert f"{said}: FAILED\n" in capsys.readouterr().out
    assert script(tmp_path, "--e2e-ran", "part", e2e=e2e) == 0


def test_a_measured_recovery_time_is_no_fault_beside_others_of_few_samples(tmp_path: Path) -> None:
    assert script(tmp_path, "--e2e-ran", e2e=[WAITED | {"runs": 1, "p95": 99.0}, waited()]) == 0


@pytest.mark.parametrize(
    ("row", "words", "status"),
    [
        (waited(), (), 0),
        (waited(p95=15.5), (), 1),
        (waited(p95=15.5), ("e2e", "part"), 1),  # what is well after it makes nothing good
        (waited(p95=15.5), ("--slack", "2"), 0),
        (waited(longest=61.0), ("--slack", "2"), 1),
    ],
)
def test_the_script_ends_with_1_where_a_recovery_time_is_over_its_limit(
    tmp_path: Path, row: dict[str, Any], words: tuple[str, ...], status: int
) -> None:
    assert script(tmp_path, *words, e2e=[row, waited() | {"name": "w_s"}]) == status


@pytest.mark.parametrize(("row", "status"), [(waited(), 0), (waited(p95=15.5), 1)])
def test_the_process_ends_with_that_status(tmp_path: Path, row: dict[str, Any], status: int) -> None:
    (tmp_path / "e2e.json").write_text(json.dumps([row]))
    command = [sys.executable, str(ROOT / "tests/bench/run.py"), "--out", str(tmp_path), "e2e"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (status, "")
    assert ("OVER" in ended.stdout) is bool(status)


def test_ci_says_that_e2e_ran_and_takes_no_older_figures_of_it() -> None:
    steps = (ROOT / ".ci/run").read_text(encoding="utf-8")
    bench = re.search(r"step bench \d+ env EDGEGPU_BENCH_BOXES=500 make (bench [A-Z0-9_= ]+?) #", steps)
    assert bench
    assert 0 < steps.index("rm -f build/bench/e2e.json") < steps.index("make e2e PYTEST_ARGS") < bench.start()
    told = subprocess.run(["make", "-n", *bench[1].split()], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tests/bench/run.py --slack 2 --e2e-ran" in told.stdout
