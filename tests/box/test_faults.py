"""The fault matrix: the installer killed, the power cut, at each step of each operation (BOX_FULL=1) or at some."""

import os

import pytest
from box.bed import ROOT, Bed
from box.faults import OPS, Cell, steps, struck, write

OUT = ROOT / "build/box"
FULL = bool(os.environ.get("BOX_FULL"))
FAULTS = ("kill", "cut")
SOME = {
    "install": (("after-SWAPPED", "kill"), ("after-restart", "cut")),
    "change": (("after-STAGED", "cut"),),
    "upgrade": (("after-verify", "kill"),),
    "uninstall": (("after-PREPARED", "kill"), ("after-SWAPPED", "cut")),
}
"""What is looked at without BOX_FULL: every operation, before, at and after its swap."""


def cells_of(bed: Bed, name: str) -> list[tuple[str, str]]:
    """Return steps and faults of an operation, all or some."""
    if not FULL:
        return list(SOME[name])
    return [(step, fault) for step in steps(bed, OPS[name]) for fault in FAULTS]


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", OPS)
def test_the_box_comes_back_whatever_dies_at_which_step(bed: Bed, installed: str, name: str) -> None:
    assert installed
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = cells_of(bed, name)
    assert chosen
    for step, fault in chosen:
        log = OUT / f"{name}-{step}-{fault}.log"
        log.unlink(missing_ok=True)
        CELLS.append(struck(bed, OPS[name], step, fault=fault, log=log))
        print(write(CELLS, OUT / "faults.json").splitlines()[-1], flush=True)  # noqa: T201  (long work)
    assert not [cell for cell in CELLS if cell.op == name and not cell.good]


CELLS: list[Cell] = []


def test_the_table_of_cells_is_written() -> None:
    assert CELLS, "no cell was run"
    print(write(CELLS, OUT / "faults.json"))  # noqa: T201  (the table is what this is for)
