"""docs/security.md: each line names test functions that are there; and what it says of packages."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAME = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)?(::\w+)?`")
"""`FILE::FUNCTION`, or `::FUNCTION` for another one of the file before it; a file by itself would show anything."""

NONE = "\N{EN DASH} ("
"""So begins what says why no test can show a line."""


def rows() -> list[list[str]]:
    """Return the cells of all lines of all tables, heads included."""
    lines = [line for line in SECURITY.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@functools.cache
def named_in(file: str) -> set[str]:
    """Return the names that pytest collects at a file's outermost level: functions, and state machines."""
    path = ROOT / "tests" / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    given = [target for one in tree.body if isinstance(one, ast.Assign) for target in one.targets]
    names = [*functions, *(target.id for target in given if isinstance(target, ast.Name))]
    return {name for name in names if name.startswith(("test_", "Test"))}


def test_every_line_names_tests_that_are_there() -> None:
    heads = [row for row in rows() if row[-1] == "shown by"]
    assert len(heads) == len(re.findall(r"^\|---", SECURITY, re.MULTILINE)) == 4
    for row in rows():
        assert len(row) == 3, row
        names = NAME.findall(row[-1])
        assert row in heads or names or row[-1].startswith(NONE), f"no test is named: {row[0]}"
        named = ""
        for file, function in names:
            named = file or named
            assert function, f"{file} is named, no test of it: {row[0]}"
            assert function.removeprefix("::") in named_in(named), f"{named}{function} is not there: {row[0]}"


def test_a_test_is_found_by_its_own_name_alone() -> None:
    here = named_in("packaging/test_security.py")
    assert "test_a_test_is_found_by_its_own_name_alone" in here
    assert here.isdisjoint({"test_a_test_is_found", "named_in", "rows", "ROOT"})
    assert named_in("packaging/test_gone.py") == set()
    assert "TestForced" in named_in("property/test_ledger_machine.py")


def test_the_packages_of_a_box_come_with_hashes() -> None:
    assert "--require-hashes --only-binary :all:" in (ROOT / "tools/env").read_text(encoding="utf-8")
    for path in (ROOT / "requirements").glob("*.txt"):
        text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
        packages = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert packages, path
        assert [line for line in packages if "--hash=sha256:" not in line] == [], path
