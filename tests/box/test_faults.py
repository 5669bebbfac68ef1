"""The fault matrix: the installer killed, the power cut, at each step of each operation (BOX_FULL=1) or a twentieth."""

import os

import pytest
from box import rotation
from box.bed import ROOT, Bed
from box.faults import OPS, Cell, steps, struck, write
from kits.daily import today

OUT = ROOT / "build/box"
FULL = bool(os.environ.get("BOX_FULL"))
FAULTS = (rotation.KILL, rotation.CUT)


def cells_of(bed: Bed, name: str) -> list[tuple[str, str]]:
    """Return steps and faults of an operation, all or those of today."""
    if not FULL:
        found = rotation.cells(rotation.INSTALLER, day=today())
        return [(step, fault) for op, step, fault in found if op == name]
    seen = steps(bed, OPS[name])
    assert [*map(_kind, rotation.groups(seen))] == [*map(_kind, rotation.groups(rotation.INSTALLER[name]))]
    return [(step, fault) for step in seen for fault in FAULTS]


def _kind(group: tuple[str, ...]) -> str:
    return group[0].rstrip("-0123456789")


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", OPS)
def test_the_box_comes_back_whatever_dies_at_which_step(bed: Bed, installed: str, name: str) -> None:
    assert installed
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = cells_of(bed, name)
    print(f"BOX_DAY={today()}: {name} {chosen}", flush=True)  # noqa: T201  (what is run again by it)
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
