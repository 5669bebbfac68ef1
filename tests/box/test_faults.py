"""The fault matrix: the installer killed, the power cut, at each step of each operation (BOX_FULL=1) or at some."""

import os
from pathlib import Path

import pytest
from box.bed import ROOT, Bed
from box.faults import OPS, Cell, steps, strike, write

OUT = ROOT / "build/box"
FULL = bool(os.environ.get("BOX_FULL"))
FAULTS = ("kill", "cut")
SOME = 4
"""Steps of each operation that are looked at without BOX_FULL: first, last, and some at equal distances between."""


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", OPS)
def test_the_box_comes_back_whatever_dies_at_which_step(bed: Bed, installed: str, name: str) -> None:
    assert installed
    op = OPS[name]
    OUT.mkdir(parents=True, exist_ok=True)
    every = steps(bed, op)
    assert every
    chosen = every if FULL else some(every)
    for number, step in enumerate(chosen):
        for fault in FAULTS if FULL else FAULTS[number % 2 :][:1]:
            log = OUT / f"{name}-{step.replace('/', '_')}-{fault}.log"
            log.unlink(missing_ok=True)
            CELLS.append(strike(bed, op, step, fault=fault, log=log))
            print(write(CELLS, OUT / "faults.json").splitlines()[-1], flush=True)  # noqa: T201  (long work)


CELLS: list[Cell] = []


def some(every: list[str]) -> list[str]:
    """Return a few steps, spread evenly."""
    if len(every) <= SOME:
        return every
    return [every[round(n * (len(every) - 1) / (SOME - 1))] for n in range(SOME)]


def test_the_table_of_cells_is_written() -> None:
    assert CELLS, "no cell was run"
    print(write(CELLS, Path(OUT / "faults.json")))  # noqa: T201  (the table is what this is for)
