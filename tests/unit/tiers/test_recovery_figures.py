"""Times that tests of a cluster measure: their rows, and a file that several processes write to."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.recovery_figures import record, recovery_figure

WRITERS, ROUNDS = 8, 20


def test_a_row_has_the_percentiles_and_the_limits_that_there_are() -> None:
    row = recovery_figure("wait_s", [3.0, 1.0, 2.0], limit=5.0, most=9.0)
    assert row == {
        "name": "wait_s",
        "unit": "s",
        "median": 2.0,
        "p95": 3.0,
        "max": 3.0,
        "limit": 5.0,
        "runs": 3,
        "most": 9.0,
    }
    assert recovery_figure("wait_s", [1.0], limit=5.0, typical=2.0)["typical"] == 2.0


def test_a_row_takes_the_place_of_the_one_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "new/figures.json"
    for name, value in (("a_s", 1.0), ("b_s", 1.0), ("a_s", 2.0)):
        record(recovery_figure(name, [value], limit=5.0), file)
    assert [(row["name"], row["max"]) for row in json.loads(file.read_text())] == [("b_s", 1.0), ("a_s", 2.0)]


def test_rows_that_are_written_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"

    def write(writer: int) -> None:
        for number in range(ROUNDS):
            record(recovery_figure(f"{writer}_{number}_s", [1.0], limit=5.0), file)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    names = {row["name"] for row in json.loads(file.read_text())}
    assert names == {f"{writer}_{number}_s" for writer in range(WRITERS) for number in range(ROUNDS)}
