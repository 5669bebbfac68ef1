"""The command matrix: agent killed, power cut, at each step of each command that restarts k3s, or at a twentieth."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import rotation
from box.bed import ROOT, WITH_K3S, Bed
from box.cloudbed import Cloud
from box.commandfaults import AGENT, CUT, INSTALLER, KILL, OPS, Cell, Faults, Step, write
from box.commandjudge import INSTALL, RESTART, UNINSTALL
from kits.daily import today

from edgegpu_agent.worker.steps import STEPS

TABLE = ROOT / "build/box/commands.json"
FULL = bool(os.environ.get("BOX_FULL"))
HALL = "hall"


@pytest.fixture(scope="module")
def faults(bed: Bed) -> Iterator[Faults]:
    """Yield a box that has pasted its line, k3s with sharing on it, and is struck."""
    bed.fresh(WITH_K3S)
    with tempfile.TemporaryDirectory() as folder:
        cloud = Cloud(bed, Path(folder) / "cloud")
        cloud.start()
        try:
            cloud.paste(cloud.line(HALL))
            cloud.online(HALL)
            made = Faults(cloud, HALL)
            yield made
            made.close()
        finally:
            cloud.stop()


def _cells(faults: Faults) -> Iterator[tuple[str, Step, str]]:
    """Return all or today's; sharing goes and comes by turns, so that each command finds something to do."""
    if not FULL:
        day = today()
        found = [(op, _step(name), fault) for op, name, fault in rotation.cells(rotation.COMMANDS, day=day)]
        print(f"BOX_DAY={day}: {[(op, str(step), fault) for op, step, fault in found]}", flush=True)  # noqa: T201
        yield from found
        return
    steps = {op: faults.steps(op) for op in OPS}
    assert {op: tuple(map(str, found)) for op, found in steps.items()} == rotation.COMMANDS
    seen = {step.name.partition("-")[2] for found in steps.values() for step in found}
    assert not set(STEPS) - seen, f"no command comes by {set(STEPS) - seen}"
    assert set(steps[INSTALL]) == set(steps[UNINSTALL])
    yield from ((RESTART, step, fault) for step in steps[RESTART] for fault in (KILL, CUT))
    yield from ((op, step, fault) for step in steps[INSTALL] for fault in (KILL, CUT) for op in (UNINSTALL, INSTALL))


def _step(name: str) -> Step:
    whose, _, rest = name.rpartition(" ")
    return Step(INSTALLER if whose else AGENT, rest)


@pytest.mark.timeout(2 * 3600)
def test_a_command_ends_right_whatever_dies_at_which_step(faults: Faults) -> None:
    cells: list[Cell] = []
    for op, step, fault in _cells(faults):
        cells.append(faults.struck(op, step, fault))
        print(write(cells, TABLE).splitlines()[-1], flush=True)  # noqa: T201  (long work)
    assert cells
    assert not [cell for cell in cells if cell.wrong]
