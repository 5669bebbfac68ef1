"""docs/security.md: each section names test functions that are there; and what it says of packages."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAME = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)?(::\w+)?`")
"""`FILE::FUNCTION`, or `::FUNCTION` for another one of the file before it; a file by itself would show anything."""

SHOWN, NONE = "Shown by: ", "no test ("
"""So begins a section's last paragraph; and so it goes on where it says why no test can show the answer."""
COLUMN, UNTESTED = "test", "no test"
"""The heading of a table's last column, in which a row has the numbers of its section's tests, or says that none is."""
NUMBERED = re.compile(r"(\d+)\. `")
WAYS = (
    "own `LD_PRELOAD`",
    "`env -i`",
    "`unshare -Urm`",
    "a static program",
    "an own copy of the driver",
    "the shared usage file",
    "`ptrace` among its own",
    "a nested container",
    "own mount namespace",
    "link map",
)
"""What a container's author of the worst intent tries, in the first column of those tables."""

ANSWERS = 58
"""How many threats the page has at least."""


def sections() -> list[tuple[str, list[str]]]:
    """Return the heading of each threat, and what stands behind `Shown by: ` in its paragraphs."""
    text = re.sub(r"^## .*", "", SECURITY, flags=re.MULTILINE)
    parts = [part.partition("\n") for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]]
    found = [(head, [" ".join(one.split()) for one in rest.split("\n\n")]) for head, _, rest in parts]
    return [(head, [one.removeprefix(SHOWN) for one in rest if one.startswith(SHOWN)]) for head, rest in found]


def rows_with_tests(head: str) -> list[list[str]]:
    """Return the rows, as cells, of a section's tables whose last column names tests."""
    text = SECURITY.partition(f"### {head}\n")[2].partition("\n### ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    parted = [[re.split(r" *\| *", line.strip("|\n ")) for line in table.splitlines()] for table in tables]
    return [row for table in parted if table[0][-1] == COLUMN for row in table[2:]]


@functools.cache
def named_in(file: str) -> set[str]:
    """Return the names that pytest collects at a file's outermost level: functions, and state machines."""
    path = ROOT / "tests" / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    given = [target for one in tree.body if isinstance(one, ast.Assign) for target in one.targets]
    names = [*functions, *(target.id for target in given if isinstance(target, ast.Name))]
    return {name for name in names if name.startswith(("test_", "Test"))}


def test_every_section_names_tests_that_are_there() -> None:
    assert len(sections()) == len(re.findall(rf"^{SHOWN.strip()}", SECURITY, re.MULTILINE)) >= ANSWERS
    for head, shown in sections():
        assert len(shown) == 1, f"a section has one list of tests: {head}"
        names = NAME.findall(shown[0])
        assert names or shown[0].startswith(NONE), f"no test is named: {head}"
        named = ""
        for (file, function), (later, following) in zip(names, [*names, ("", "")][1:], strict=True):
            named = file or named
            one = function or ("" if later else following)  # a long name stands in two parts: the file, the function
            assert one, f"{file} is named, no test of it: {head}"
            assert one.removeprefix("::") in named_in(named), f"{named}{one} is not there: {head}"


def test_each_way_of_a_containers_author_names_its_tests_or_says_that_there_is_none() -> None:
    ways: list[str] = []
    for head, shown in sections():
        rows = rows_with_tests(head)
        numbers = NUMBERED.findall(shown[0]) if rows else []
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)], head
        for way, *_, tests in rows:
            assert tests == UNTESTED or set(tests.split(", ")) <= set(numbers), f"{way}: there is no test {tests}"
            ways.append(way)
    assert [words for words in WAYS if not any(words in way for way in ways)] == []


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
