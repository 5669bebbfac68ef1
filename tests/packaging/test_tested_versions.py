"""tools/tested_versions.py: the table of what ran where follows from the record alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tested_versions as tool

OLD = tool.FileRun("2026-11-01", "v1.36.3", "2.3.7", "stand-in", "v1", "test_restarts.py", 3, 1, 0)
NEW = tool.FileRun("2026-11-02", "v1.36.3", "2.3.7", "stand-in", "v1", "test_restarts.py", 4, 0, 2)
NEWEST = tool.FileRun("2026-10-30", "v1.37.2", "2.4.2", "stand-in", "v1", "test_lab.py", 9, 1, 0)
PAGE = f"words\n{tool.BEGIN}old\n{tool.END}more\n"


def test_of_a_file_on_the_same_programs_the_latest_run_counts_wherever_it_stands() -> None:
    assert tool.latest([NEW, NEWEST, OLD]) == [NEWEST, NEW]


def test_two_minor_versions_are_compared_by_number() -> None:
    newer = tool.FileRun("2026-11-02", "v1.100.0", "2.3.7", "stand-in", "v1", "test_restarts.py", 4, 0, 0)
    assert tool.latest([NEW, newer]) == [newer, NEW]


def test_a_record_is_read_as_it_was_written() -> None:
    assert tool.read(tool.written([NEWEST, NEW])) == [NEWEST, NEW]


def test_the_table_names_what_did_not_run_and_what_failed() -> None:
    other_day = replace(NEW, file="test_lab.py")
    rows = tool.table([NEWEST, other_day, OLD]).splitlines()[2:]
    assert rows == [
        f"| v1.37.2 | 2.4.2 | stand-in | v1 |{' not run |' * 6} 1, failed: test_lab | 2026-10-30 |",
        f"| v1.36.3 | 2.3.7 | stand-in | v1 |{' not run |' * 4} {OLD.cell} | not run | 1 | 2026-11-01 to 2026-11-02 |",
    ]
    assert OLD.cell == "3 passed, **1 failed**"
    assert NEW.cell == "4 passed, 2 skipped"


def test_a_machine_has_a_row_where_a_run_has_written_one_and_all_of_it_is_another_row_than_one_cut() -> None:
    machine = replace(
        NEWEST, cgroup="v2", file="test_vm_cuts.py", system="Debian 12, kernel 6.1.0-50", passed=1, failed=0
    )
    whole = replace(machine, full=True, passed=5)
    versions = "| v1.37.2 | 2.4.2 | stand-in | v2 | Debian 12, kernel 6.1.0-50 |"
    assert tool.table([NEWEST]).count("| Kubernetes |") == 1
    rows = tool.table(tool.latest([NEWEST, machine, whole])).splitlines()
    assert f"{versions} FULL=1 | not run | not run | not run | 5 passed | 0 | 2026-10-30 |" in rows
    assert f"{versions} one cut | not run | not run | not run | 1 passed | 0 | 2026-10-30 |" in rows
    assert tool.read(tool.written([whole, NEWEST])) == [whole, NEWEST]


@pytest.mark.parametrize(("page", "words"), [("README.md", "{} to {}"), ("README.zh-CN.md", "{} 到 {}")])
def test_a_readme_names_the_oldest_and_the_newest_kubernetes_that_ran(page: str, words: str) -> None:
    """What an installation accepts is older: nobody is to take that for what was tried."""
    minors = sorted({tuple(map(int, run.kubernetes[1:].split(".")[:2])) for run in tool.read(tool.RECORD.read_text())})
    oldest, newest = (".".join(map(str, minor)) for minor in (minors[0], minors[-1]))
    assert words.format(oldest, newest) in (tool.ROOT / page).read_text()


def test_the_table_takes_the_place_between_the_marks_alone() -> None:
    page = tool.put_in(PAGE, "rows")
    assert page == f"words\n{tool.BEGIN}\nrows\n{tool.END}more\n"
    assert tool.put_in(page, "rows") == page
