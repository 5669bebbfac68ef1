"""The command line of a box in the chaos run: the installer and the doctor, with a ledger of what they really did.

It keeps the installer's own journal, by the installer's own code, and holds its lock; what a change does to the machine
is one line added to the ledger, and the ledger is the state that is asked for later.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord

_STEP_S = 0.02
_STARTED_CS = 50
_PLUGIN = "edgegpu-plugin.service"
_PUT_BACK_EVERY = 9


def ledger() -> Path:
    return Path(os.environ["CHAOS_LEDGER"])


def now_cs() -> int:
    """Return the hundredths of a second since the boot: the time of day may be wrong by years here."""
    return int(Path("/proc/uptime").read_text().split()[0].replace(".", ""))


def add(name: str, words: str) -> None:
    """Add a line to a ledger; on the disk when this returns."""
    handle = os.open(ledger() / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, f"{now_cs()} {words}\n".encode())
    os.fsync(handle)
    os.close(handle)


def lines(name: str) -> list[list[str]]:
    path = ledger() / name
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def stands(what: str) -> str:
    """Return how something stands: what was written last of it, since sharing went; settings go with it."""
    for words in reversed(lines("changes")):
        if words[2] == what:
            return words[3]
        if words[2:] == ["sharing", "off"]:
            return ""
    return ""


def wanted(args: list[str]) -> dict[str, str]:
    """Return what the command line is to change, and to what: an installation comes with its settings."""
    if args[0] == "uninstall":
        asked = {"sharing": "off"}
    else:
        asked = {"sharing": "on"}
        if "--policy" in args:
            asked["policy"] = args[args.index("--policy") + 1]
        if cards := [args[at + 1] for at, word in enumerate(args) if word == "--exclude"]:
            asked["exclusions"] = ",".join(cards)
    return {what: value for what, value in asked.items() if stands(what) != value}


def apply(id_: str, what: str, value: str) -> None:
    """Change the machine; called again after a kill it adds no second line."""
    if not any(words[1:3] == [id_, what] for words in lines("changes")):
        add("changes", f"{id_} {what} {value}")
    if what == "sharing":
        unit = Path(os.environ["CHAOS_UNITS"]) / _PLUGIN
        unit.touch() if value == "on" else unit.unlink(missing_ok=True)
        if not any(words[2:] == [id_] for words in lines("k3s.service")):
            add("k3s.service", f"installer {id_}")
        while now_cs() - int(lines("k3s.service")[-1][0]) < _STARTED_CS:  # the real one waits too until k3s is up
            time.sleep(_STEP_S)


def transact(args: list[str]) -> dict[str, object]:
    from edgegpu_installer.errors import BusyError  # noqa: PLC0415  (the doctor does without)
    from edgegpu_installer.transaction.journal import TransactionJournal  # noqa: PLC0415
    from edgegpu_installer.transaction.lock import locked  # noqa: PLC0415

    root = Path(os.environ["CHAOS_ROOT"])
    journal = TransactionJournal(root / "var/lib/edgegpu/tx")
    try:
        with locked(root / "run/edgegpu-tx.lock"):
            if args[0] == "transaction":
                return resume(journal)
            return begin(journal, args[args.index("--transaction-id") + 1], wanted(args))
    except BusyError:
        return {"error": "another change is under way", "code": "BUSY"}


def begin(journal: TransactionJournal, id_: str, asked: dict[str, str]) -> dict[str, object]:
    from edgegpu_installer.changes import TransactionKind  # noqa: PLC0415
    from edgegpu_installer.transaction.journal import (  # noqa: PLC0415
        TransactionRecord,
        TransactionTables,
        author,
        next_record,
        read_clocks,
    )
    from edgegpu_installer.transaction.states import TransactionState  # noqa: PLC0415

    if journal.state_of(id_) is not None:
        return {"error": "this transaction has been", "code": "KNOWN"}
    if journal.state_of(id_) is None and (record := journal.read()) is not None and not ended(record):
        return {"error": "the last change is not finished", "code": "BUSY"}
    if not asked:
        return {"state": "COMMITTED", "changed": False}
    now = read_clocks()
    record = TransactionRecord(
        id=id_,
        op=TransactionKind.CHANGE,
        state=TransactionState.PREPARED,
        boot_id=now.boot_id,
        started_s=int(now.wall_s),
        deadline_wall_s=int(now.wall_s) + 300,
        deadline_boot_s=int(now.boot_s) + 300,
        author=author(),
        was=" ".join(f"{what}={value}" for what, value in asked.items()),
    )
    journal.begin(id_, TransactionTables((), (), (), ()))
    journal.write(record)
    for state in (TransactionState.STAGED, TransactionState.SWAPPED):
        time.sleep(_STEP_S)
        record = next_record(record, state)
        journal.write(record)
    return finish(journal, record)


def finish(journal: TransactionJournal, record: TransactionRecord) -> dict[str, object]:
    from edgegpu_installer.transaction.journal import next_record  # noqa: PLC0415
    from edgegpu_installer.transaction.states import TransactionState  # noqa: PLC0415

    if sum(record.id.encode()) % _PUT_BACK_EVERY == 0:
        for state in (TransactionState.ROLLING_BACK, TransactionState.ROLLED_BACK):
            journal.write(next_record(record, state, why="this one does not come up"))
        return {"state": "ROLLED_BACK", "why": "this one does not come up"}
    if record.state is not TransactionState.VERIFYING:
        record = next_record(record, TransactionState.VERIFYING)
        journal.write(record)
    for change in record.was.split():
        apply(record.id, *change.split("=", 1))
    time.sleep(_STEP_S)
    journal.write(next_record(record, TransactionState.COMMITTED))
    return {"state": "COMMITTED", "changed": True}


def ended(record: TransactionRecord) -> bool:
    return record.state.value in {"COMMITTED", "ROLLED_BACK"}


def resume(journal: TransactionJournal) -> dict[str, object]:
    """Finish what has lost its author."""
    from edgegpu_installer.transaction.journal import next_record  # noqa: PLC0415
    from edgegpu_installer.transaction.states import TransactionState  # noqa: PLC0415

    record = journal.read()
    if record is None or ended(record):
        return {"state": record.state if record else ""}
    if record.state in {TransactionState.PREPARED, TransactionState.STAGED}:
        journal.write(next_record(record, TransactionState.ROLLED_BACK, why="its author died"))
        return {"state": "ROLLED_BACK", "why": "its author died"}
    return finish(journal, record)


def main(args: list[str]) -> int:
    match args[:1]:
        case ["doctor"]:
            add("doctor", "looked")
            answer: dict[str, object] = {"version": "0", "level": "ok", "checks": []}
        case ["install" | "uninstall"]:
            answer = transact(args)
        case ["transaction"] if args[1:2] == ["resume"]:
            answer = transact(args)
        case _:
            answer = {}
    sys.stdout.write(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
