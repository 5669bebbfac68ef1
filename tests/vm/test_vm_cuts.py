"""On a kernel and a disk of its own: power goes in the middle of an installation, and the machine comes back whole."""

import pytest
from box.bed import ROOT
from box.faults import OPS, struck
from box.rotation import CUT, INSTALLER
from kits.daily import of_the_day
from vm.vmbed import VmBed

STEPS = ("after-arm", "after-STAGED", "after-swap-12", "after-RESTARTING", "after-COMMITTED")
"""Before anything is changed, with all files beside, in the middle of the swap, at k3s's restart, at the end."""
LOGS = ROOT / "build/vm"


@pytest.mark.parametrize("step", of_the_day(STEPS, len(STEPS)))
def test_a_power_cut_in_an_installation_leaves_a_whole_machine(bed: VmBed, step: str) -> None:
    assert step in INSTALLER["install"]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{step}.log"
    log.unlink(missing_ok=True)
    cell = struck(bed, OPS["install"], step, fault=CUT, log=log)
    print(cell)  # noqa: T201  (the figures of a long run)
    assert cell.good, cell
