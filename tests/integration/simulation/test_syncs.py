"""What must be on the disk before the next step begins is: held by the calls, since no test here cuts the power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.syncs import library, traced

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def syncs(tmp_path: Path) -> Path:
    return library(tmp_path)


BOX = """
import sys
from dataclasses import replace
from pathlib import Path
from edgegpu_agent.journal.journal import BoxJournal as Journal
journal = Journal(Path(sys.argv[1]) / "box/dev.db", wall_s=lambda: 1.0)
mark("load")
held = journal.load(enrolment=1, root=sys.argv[2])
for name in ("first", "second"):
    mark(name)
    held = replace(held, server_time=held.server_time + 1)
    journal.save(held)
mark("end")
"""
ROOT_KEY = "A" * 43


def test_each_save_of_the_boxs_journal_is_on_the_disk_when_it_returns(tmp_path: Path, syncs: Path) -> None:
    calls = traced(BOX, tmp_path, ROOT_KEY, library=syncs)
    for step in ("load", "first", "second"):
        assert "sync box/dev.db-wal" in calls[step], calls
    assert "sync box" in calls[""], "the file's own name"


TRANSACTION = """
import sys
from pathlib import Path
from edgegpu_installer.machine import atomic
from edgegpu_installer.machine.atomic import PathEntry as Entry
from edgegpu_installer.changes import FileChange
from edgegpu_installer.transaction.journal import TransactionJournal as Journal
from edgegpu_installer.transaction.journal import TransactionRecord as Record
from edgegpu_installer.transaction.journal import TransactionTables as Tables
from edgegpu_installer.transaction.journal import TargetPath as Target
from edgegpu_installer.changes import TransactionKind as Op
from edgegpu_installer.transaction.states import TransactionState as State
root = Path(sys.argv[1])
path = root / "etc/file"
new = Entry(b"new", mode=0o600)
target = Target(number=1, change=FileChange("/etc/file", content=b"new"), old=atomic.read_entry(path), new=new)
journal = Journal(root / "var/lib/edgegpu/tx")
mark("begin")
journal.begin("id", Tables((target,), (), (), ()))
mark("write")
journal.write(Record(id="id", op=Op.CHANGE, state=State.PREPARED))
mark("folder")
atomic.make_folder(root / "etc/made")
mark("stage")
atomic.stage(path, new)
mark("swap")
atomic.swap(path, new)
mark("gone")
atomic.swap(path, Entry())
mark("end")
"""
TX = "var/lib/edgegpu/tx"


def table(name: str) -> list[str]:
    return [f"sync {TX}/{name}.new", f"rename {TX}/{name}.new {TX}/{name}", f"sync {TX}"]


def test_a_transaction_is_on_the_disk_step_by_step(tmp_path: Path, syncs: Path) -> None:
    for folder in ("etc", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/file").write_text("old")
    calls = traced(TRANSACTION, tmp_path, library=syncs)
    assert calls["begin"] == [
        *("sync var/lib", "sync var/lib/edgegpu", f"sync {TX}", f"sync {TX}"),  # the folders' own names
        *(f"sync {TX}/old/1", f"sync {TX}/new/1", f"sync {TX}/old", f"sync {TX}/new"),
        *(line for name in ("spare", "folders", "remove", "units", "files") for line in table(name)),
    ]
    assert calls["write"][-3:] == table("state")
    assert calls["folder"] == ["sync etc"]
    assert calls["stage"] == ["sync etc/.file.edgegpu-new", "sync etc"]
    assert calls["swap"] == ["rename etc/.file.edgegpu-new etc/file", "sync etc"]
    assert calls["gone"] == ["sync etc"]
