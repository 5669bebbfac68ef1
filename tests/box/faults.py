"""One cell of the fault matrix: an operation stops at one of its steps, the fault strikes, the box must come back."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from box import filejudge
from box.bed import APPS, JOURNAL, WITH_EDGEGPU, WITH_K3S, Bed
from box.filejudge import COMMITTED, NOT_BEGUN, ROLLED_BACK
from lab.labrun import LabError, patient, wait_until

ENDS = (COMMITTED, ROLLED_BACK, NOT_BEGUN)
DEADLINE_S, SHORT_S = 120, 25
"""How long after its start an operation is undone: one that shall come as far as its verification, and others."""

_LATE = ("VERIFYING", "verify", "baseline", "stop", "restart", "COMMITTED", "tidy", "disarm")
BACK_S = 180.0
PAUSE, TRACE = "EDGEGPU_INSTALLER_PAUSE", "EDGEGPU_INSTALLER_TRACE"
TRACE_FILE = "/run/edgegpu-steps"


@dataclass(frozen=True, slots=True)
class Op:
    """An operation on a box: from which disk, and what is run there."""

    name: str
    image: str
    command: tuple[str, ...]

    @property
    def has_apps(self) -> bool:
        """Whether services with shares run when it begins."""
        return self.image == WITH_EDGEGPU


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one fault at one step; end is the transaction's state, or why the box did not come back.

    `files`: those that are not as that end says, in words.
    """

    op: str
    step: str
    fault: str
    end: str
    seconds: float
    files: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the box came back, with the files that it should have."""
        return self.end in ENDS and not self.files


_EDGEGPU = "/usr/local/bin/edgegpu"
OPS = {
    op.name: op
    for op in (
        Op("install", WITH_K3S, ("install",)),
        Op("change", WITH_EDGEGPU, (_EDGEGPU, "install", "--yes", "--policy", "spread")),
        Op("upgrade", WITH_EDGEGPU, ("/opt/edgegpu/9.9.9/bin/edgegpu", "install", "--yes")),
        Op("uninstall", WITH_EDGEGPU, (_EDGEGPU, "uninstall", "--yes", "--force")),
    )
}


def command(bed: Bed, op: Op, *, step: str = "after-disarm") -> Sequence[str]:
    """Return the words that are run in the box, for an operation that shall come as far as a step."""
    seconds = DEADLINE_S if step.removeprefix("after-") in _LATE else SHORT_S
    deadline = ("--deadline", f"{patient(seconds):.0f}")
    if op.name == "install":
        return ("sh", "-c", bed.one_line("--yes", *deadline))
    return (*op.command, *deadline)


def begin(bed: Bed, op: Op) -> dict[str, str]:
    """Boot the box for an operation; returns the ids of the containers that have to live."""
    bed.fresh(op.image)
    if op.name == "upgrade":
        second_version(bed)
    bed.machine.exec("sync")
    return bed.apps_run() if op.has_apps else {}


def second_version(bed: Bed) -> None:
    """Put a newer version beside the installed one, as its install.sh does: the same but for its number."""
    bed.machine.exec("sh", "-c", 'cd /opt/edgegpu; cp -a "$(readlink current)" 9.9.9; echo 9.9.9 > 9.9.9/VERSION; sync')


def steps(bed: Bed, op: Op) -> list[str]:
    """Do the operation once without a fault, and return its steps in their order."""
    begin(bed, op)
    bed.machine.exec("env", f"{TRACE}={TRACE_FILE}", *command(bed, op), timeout_s=300)
    first, *rest = dict.fromkeys(bed.machine.exec("cat", TRACE_FILE).stdout.split())
    return [first, *(step for step in rest if step.startswith("after-"))]  # nothing lies between one's end and the next


def strike(bed: Bed, op: Op, step: str, *, fault: str, log: Path) -> Cell:
    """Stop the operation at a step, let the fault strike, and see what becomes of the box.

    Raises:
        LabError: k3s is not Ready afterwards, a service died, or the transaction stays unfinished.
    """
    containers = begin(bed, op)
    before, last = bed.disk(), bed.journal().get("id", "")
    running = bed.machine.popen("env", f"{PAUSE}={step}", *command(bed, op, step=step), log=log)
    pid = wait_until(lambda: waiting(log, step), what=f"{op.name} stands at {step} ({log})")
    began = time.monotonic()
    if fault == "kill":
        bed.machine.exec("kill", "-KILL", pid)
    else:
        bed.machine.cut()
    running.wait(30)
    if fault == "cut":
        bed.machine.up()
    bed.machine.ready()
    end = wait_until(
        lambda: ended(bed, op, last), what=f"{op.name} is finished: {bed.journal()}", timeout_s=BACK_S, every_s=0.5
    )
    bed.machine.ready()
    seconds = time.monotonic() - began
    if op.name == "uninstall" and fault == "cut" and end == COMMITTED:
        bed.apps_wait()  # the power ended their containers, and nobody offers what they ask for
    elif op.has_apps:
        now = bed.apps_run()
        if fault == "kill" and now != containers:
            raise LabError(f"services of {APPS} were started anew: {containers}, {now}")
    if starved := bed.starved():
        raise LabError(f"systemd's watchdog ended what ran: {starved}")
    cell = Cell(op.name, step, fault, end, round(seconds, 1))
    return replace(cell, files=tuple(files(bed, cell, before)))


def files(bed: Bed, cell: Cell, before: dict[str, str]) -> list[str]:
    """Compare every file with what the end of an operation says of it."""
    op = OPS[cell.op]
    if cell.end != COMMITTED and op.has_apps:
        bed.offered()  # the plugin's sockets are there again
    if cell.end == ROLLED_BACK:
        return filejudge.put_back(before, bed.disk(), first=not op.has_apps)
    if cell.end == NOT_BEGUN:
        alone = (cell.op, cell.step, cell.fault) == ("install", "after-early-1", "cut")
        return filejudge.not_begun(before, bed.disk(), first=not op.has_apps, unit_alone=alone)
    if op.name == "uninstall":
        return filejudge.taken_off(bed.pristine, bed.disk())
    bed.offered()
    ours, drifted = bed.written()
    return filejudge.carried_out(before, bed.disk(), ours=ours, drifted=drifted)


def struck(bed: Bed, op: Op, step: str, *, fault: str, log: Path) -> Cell:
    """Return what strike() does; of a box that does not come back the reason, so that the other cells are seen too."""
    began = time.monotonic()
    try:
        return strike(bed, op, step, fault=fault, log=log)
    except LabError as error:
        return Cell(op.name, step, fault, f"FAILED: {error}", round(time.monotonic() - began, 1))


def waiting(log: Path, step: str) -> str:
    """Return the pid of the installer that waits at its step, empty while it does not yet."""
    found = re.search(rf"waiting at {re.escape(step)}, process (\d+)", log.read_text())
    return found[1] if found else ""


_NOTHING = "! test -e /var/lib/edgegpu/baseline && ! test -e /etc/systemd/system/edgegpu-plugin.service"
_NOBODY_COMES = """
systemctl is-active edgegpu-deadman.timer edgegpu-deadman.service | grep -q ^activ && exit 1
systemctl list-jobs --no-legend | grep -q edgegpu-recover && exit 1
! systemctl is-active edgegpu-recover.service | grep -q ^activ
"""
"""Asked in the order in which one of them starts the next."""


def ended(bed: Bed, op: Op, last: str) -> str:
    """Return how an operation ended, empty while it has not.

    A journal that is missing is no end by itself: an uninstall that is complete leaves none, and a first installation
    that had not begun, but only with nothing of edgegpu on the machine, and nobody who would still come for the rest.

    Args:
        bed: the box.
        op: the operation.
        last: the id of the transaction before it: its record stands until another one begins.
    """
    journal = bed.journal()
    state = journal.get("state", "")
    if journal and journal.get("id") != last:
        return state if state in ENDS and not says(bed, f"test -e {JOURNAL}/files") else ""
    if not says(bed, _NOBODY_COMES):
        return ""
    if journal:
        return NOT_BEGUN if state in ENDS else ""
    if op.name not in {"install", "uninstall"} or not says(bed, _NOTHING):
        return ""
    return COMMITTED if op.name == "uninstall" else NOT_BEGUN


def says(bed: Bed, script: str) -> bool:
    """Return whether a script in the box ends well."""
    return bed.machine.exec("sh", "-c", script, check=False).returncode == 0


def write(cells: Sequence[Cell], target: Path) -> str:
    """Write the table as JSON, and return it for people."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    width = max((len(cell.step) for cell in cells), default=0)
    rows = [
        f"{c.op:<10} {c.step:<{width}} {c.fault:<6} {c.end:<12} {c.seconds:6.1f} s {'; '.join(c.files)}".rstrip()
        for c in cells
    ]
    return "\n".join(rows)


__all__ = ["OPS", "Cell", "Op", "steps", "struck", "write"]
