"""The author is killed at each of its steps: whoever finds the journal leaves the old machine or the new one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import OVER, RECOVER, Bed, install

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord
from edgegpu_installer.transaction.states import TERMINAL, TransactionState
from edgegpu_installer.transaction.transaction import resume

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgegpu_installer.changes import Deadline

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def change() -> Plan:
    return Plan(
        TransactionKind.CHANGE,
        (
            FileChange("/etc/rancher/k3s/edgegpu-scheduler.yaml", content=b"spread\n", mode=0o600, k3s_reads=True),
            FileChange("/etc/edgegpu/plugin.yaml", content=b"policy: spread\n"),
        ),
        start=("edgegpu-plugin",),
        restart="k3s",
    )


def uninstall(bed: Bed) -> Plan:
    files = baseline.restore_plan(bed.layout)
    return Plan(TransactionKind.UNINSTALL, files, reload=True, stop=("edgegpu-plugin",), restart="k3s")


def begin(root: Path, op: TransactionKind) -> tuple[Bed, Plan]:
    bed = Bed(root)
    if op is TransactionKind.INSTALL:
        return bed, install()
    bed.run(install())
    return bed, change() if op is TransactionKind.CHANGE else uninstall(bed)


def dead_man(bed: Bed) -> None:
    bed.recover("deadline")


def boot(bed: Bed) -> None:
    bed.reboot()
    bed.recover("deadline")


def start_of_k3s(bed: Bed) -> None:
    bed.set_unit("k3s", "activating", start="again")
    bed.recover("check", "k3s")
    bed.set_unit("k3s", "active", start="again")
    bed.recover("deadline")


def agent(bed: Bed) -> None:
    resume(bed.machine(), verify=accept)


def accept(_: Deadline) -> None:
    return


def some(steps: list[str]) -> list[str]:
    """The steps without those that look as another one does: of a row of files the first two; all when asked for."""
    if os.environ.get("EDGEGPU_ALL_STEPS"):
        return steps
    later = [step for step in steps if step.startswith("after-")]
    seen: Counter[str] = Counter()
    chosen = []
    for step in later:
        kind = step.rstrip("0123456789")
        seen[kind] += 1
        if seen[kind] <= 2:
            chosen.append(step)
    return chosen


PAIRS = [
    *((TransactionKind.INSTALL, finder) for finder in (dead_man, boot, start_of_k3s, agent)),
    *((TransactionKind.CHANGE, finder) for finder in (dead_man, boot)),
    *((TransactionKind.UNINSTALL, finder) for finder in (dead_man, boot)),
]


@pytest.mark.parametrize(("op", "finder"), PAIRS)
def test_killed_at_every_step(tmp_path: Path, op: TransactionKind, finder: Callable[[Bed], None]) -> None:
    bed, plan = begin(tmp_path / "0", op)
    steps, old = bed.steps(plan), strip(bed.tree())
    bed.run(plan)
    new = strip(bed.tree())
    for number, step in enumerate(some(steps), 1):
        bed, plan = begin(tmp_path / str(number), op)
        before = TransactionJournal(bed.layout.tx).read()
        bed.die_at(step, plan, deadline_s=OVER if finder is not agent else 600)
        finder(bed)
        record, found = TransactionJournal(bed.layout.tx).read(), strip(bed.tree())
        where = (op, step, record)
        assert record is None or record.state in TERMINAL, where
        # without a record nothing has begun, or all is gone
        committed = (
            record.state is TransactionState.COMMITTED and is_new(record, before)
            if record
            else op is TransactionKind.UNINSTALL
        )
        assert found == (new if committed else old), where
        assert bed.unit("k3s") == "active", where


def is_new(record: TransactionRecord, before: TransactionRecord | None) -> bool:
    return before is None or record.id != before.id


def test_after_a_kill_the_same_can_be_done_again(tmp_path: Path) -> None:
    for op in (TransactionKind.INSTALL, TransactionKind.CHANGE, TransactionKind.UNINSTALL):
        for step in ("before-PREPARED", "after-STAGED", "after-swap-5", "after-VERIFYING", "after-COMMITTED"):
            bed, plan = begin(tmp_path / f"{op}-{step}", op)
            if step not in bed.steps(plan):
                continue
            bed.die_at(step, plan)
            if bed.layout.tx.exists():
                assert bed.run(plan).state is TransactionState.COMMITTED


def strip(tree: dict[str, str]) -> dict[str, str]:
    """Leave out the journal's own and the baseline, whose names hold the transactions' ids."""
    return {name: what for name, what in tree.items() if not name.startswith("var/lib/edgegpu")}


ONCE = ("mv", "rm", "sync", "cp", "rmdir", "tac", "stat", "date")


def test_the_program_that_undoes_can_itself_be_killed_anywhere(tmp_path: Path) -> None:
    """Each of its programs, in turn, kills it before doing its work."""
    cut = tmp_path / "bin"
    cut.mkdir()
    for name in ONCE:
        real = shutil.which(name)
        (cut / name).write_text(KILLER.format(real=real))
        (cut / name).chmod(0o755)
    number = 0
    while number < 200:
        number += 1
        bed = Bed(tmp_path / str(number))
        old = bed.tree()
        bed.die_at("after-VERIFYING", install(), deadline_s=OVER)
        environment = bed.environment | {"KILL_AT": str(number), "KILL_COUNT": str(bed.root / "run/count")}
        environment["PATH"] = f"{cut}:{environment['PATH']}"
        done = subprocess.run(["sh", RECOVER, "deadline"], env=environment, check=False, start_new_session=True)
        bed.recover("deadline")
        record = TransactionJournal(bed.layout.tx).read()
        assert record is not None
        assert record.state is TransactionState.ROLLED_BACK
        assert bed.tree() == old, number
        if done.returncode == 0:
            break
    assert number > 20


KILLER = """#!/bin/sh
count=$(($(/bin/cat "$KILL_COUNT" 2> /dev/null || echo 0) + 1))
echo $count > "$KILL_COUNT"
[ $count != "$KILL_AT" ] || kill -KILL 0
exec {real} "$@"
"""
