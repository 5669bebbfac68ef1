"""cuGetProcAddress: for every name, version and flag the limiter gives the driver's own answer, or its hook of that."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.elf import exports
from driver.limited import make_sides
from driver.report import Figures
from limiter_functions import read_table
from native.limiterkit import SOURCES

pytestmark = pytest.mark.driver

PROGRAM = Path(__file__).with_name("pointers.c")
TABLE = SOURCES / "cuda/functions.tsv"
HOOKS = {function.name for function in read_table(TABLE) if function.rule == "hook"}
OLDER_FORM = 470
"""The first branch with cuGetProcAddress."""
LEAST = 50_000
"""How many calls a driver with cuGetProcAddress is asked at least."""


@dataclass(frozen=True)
class Pointer:
    """One answer: of what, the status, the symbol that the pointer is, and in which library."""

    question: tuple[str, ...]
    status: tuple[str, ...]
    symbol: str
    library: str


def _names(driver: Unpacked) -> set[str]:
    names = {symbol for symbol in exports(driver.library("cuda")) if symbol.startswith("cu")}
    names |= {function.name for function in read_table(TABLE)}
    plain = {re.sub(r"_pt[sd][sz]$", "", name) for name in names}
    return names | plain | {re.sub(r"_v\d$", "", name) for name in plain} | {"cuNoSuchFunction"}


def _versions() -> set[int]:
    """Return the versions in which the list says that functions came, and some before, between and behind them."""
    rows = [line.split("\t")[3] for line in TABLE.read_text().splitlines() if line.startswith("cu")]
    parts = [row.split(".") for row in rows]
    return {0, 1000, 6050, 12345, 20000} | {1000 * int(major) + 10 * int(minor) for major, minor in parts}


def _pointers(text: str) -> list[Pointer]:
    rows = [line.split() for line in text.splitlines()]
    return [Pointer(tuple(row[:4]), tuple(row[4:6]), row[6], row[7]) for row in rows]


def _is_right(bare: Pointer, limited: Pointer) -> bool:
    """Return whether an answer is the driver's own; a hook stands in the limiter, what is passed on in either."""
    same = (bare.question, bare.status, bare.symbol) == (limited.question, limited.status, limited.symbol)
    return same and (bare.symbol not in HOOKS or limited.library == "front")


def test_each_pointer_is_the_drivers_or_its_hook(
    driver: Unpacked, limiter_build: Path, tmp_path: Path, figures: Figures
) -> None:
    program, names, versions = (tmp_path / name for name in ("pointers", "names", "versions"))
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, PROGRAM, "-ldl"], check=True)
    names.write_text("\n".join(sorted(_names(driver))))
    versions.write_text("\n".join(map(str, sorted(_versions()))))
    bare, limited = make_sides(driver, limiter_build, tmp_path).both([program, names, versions])
    assert (bare.status, limited.status) == (0, 0), bare.err + limited.err
    asked, answers = _pointers(bare.out), _pointers(limited.out)
    if int(driver.branch.name) < OLDER_FORM:
        assert asked == answers == []
        return
    assert len(answers) == len(asked)
    known = {answer.question: answer for answer in answers}
    wrong = [(row, known[row.question]) for row in asked if not _is_right(row, known[row.question])]
    hooked = sum(row.symbol in HOOKS for row in asked)
    pointers = sum(row.symbol != "-" for row in asked)
    figures.note("pointers", asked=len(asked), pointers=pointers, hooked=hooked, wrong=len(wrong))
    assert len(asked) > LEAST
    assert hooked > 1000
    assert {row.symbol for row in asked if row.symbol == "?"} == set(), "a pointer that is no exported symbol"
    assert wrong == []
