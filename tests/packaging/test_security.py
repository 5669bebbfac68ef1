"""docs/security.md: each line names tests that are there; and what it says of packages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAME = re.compile(r"`((?:[a-z0-9_*]+/)+[a-z0-9_*]+\.(?:py|sh))`")
NONE = "\N{EN DASH} ("
"""So begins what says why no test can show a line."""


def rows() -> list[list[str]]:
    """Return the cells of all lines of all tables, heads included."""
    lines = [line for line in SECURITY.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_line_names_tests_that_are_there() -> None:
    heads = [row for row in rows() if row[-1] == "shown by"]
    assert len(heads) == len(re.findall(r"^\|---", SECURITY, re.MULTILINE)) == 4
    for row in rows():
        assert len(row) == 3, row
        names = NAME.findall(row[-1])
        assert row in heads or names or row[-1].startswith(NONE), f"no test is named: {row[0]}"
        for name in names:
            assert list((ROOT / "tests").glob(name)), f"{name} is not there: {row[0]}"


def test_the_packages_of_a_box_come_with_hashes() -> None:
    assert "--require-hashes --only-binary :all:" in (ROOT / "tools/env").read_text(encoding="utf-8")
    for path in (ROOT / "requirements").glob("*.txt"):
        text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
        packages = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert packages, path
        assert [line for line in packages if "--hash=sha256:" not in line] == [], path
