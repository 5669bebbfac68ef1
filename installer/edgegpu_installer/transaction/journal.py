"""The journal of the last transaction, readable by a shell: a record, tables, old and new contents, a log."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from edgegpu_base.files import sync_folder
from edgegpu_base.process.clocks import boot_id, boot_s
from edgegpu_installer.changes import FileChange, TransactionKind
from edgegpu_installer.errors import InstallError, TransactionJournalError
from edgegpu_installer.machine import atomic
from edgegpu_installer.machine.atomic import PathEntry, read_entry
from edgegpu_installer.transaction.states import TERMINAL, RecoveryDecision, TransactionState, after_crash, may_follow

_SPARE_BYTES = 4096
"""Space kept for the records of a rollback, in case the disk fills up meanwhile."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The journal's record of a transaction.

    `deadline_boot_s` is of CLOCK_BOOTTIME and counts while `boot_id` is this boot's. After another boot
    `deadline_wall_s` counts, unless the clock is before `started_s`. `author`: its pid and start time. `unit`: the k3s
    unit. `restart`: whether a file that it reads changes. `invocation`: the start of it that is known to have read the
    old files (`later`: any from now on). `was`: its state then. `settle_s`, `wait_s`: how long k3s must stay up after a
    rollback, and may take for that. `agent`: the agent's condition before an upgrade (see agent_health).
    """

    id: str
    op: TransactionKind
    state: TransactionState
    boot_id: str = ""
    started_s: int = 0
    deadline_wall_s: int = 0
    deadline_boot_s: int = 0
    attempts: int = 0
    author: str = ""
    unit: str = ""
    restart: bool = False
    reload: bool = False
    invocation: str = ""
    was: str = ""
    settle_s: int = 10
    wait_s: int = 180
    version: str = ""
    agent: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of this machine: wall clock and CLOCK_BOOTTIME in seconds, and the id of this boot."""

    wall_s: float
    boot_s: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class TargetPath:
    """One path of a transaction with its old and its new entry; `number` names their contents in the journal."""

    number: int
    change: FileChange
    old: PathEntry
    new: PathEntry

    @property
    def row(self) -> str:
        """The path's line in the table `files`."""
        flags = ("k" if self.change.k3s_reads else "") + ("e" if self.change.early else "") or "-"
        return f"{self.number} {flags} {self.old.kind} {self.new.kind} {self.change.path}"


@dataclass(frozen=True, slots=True)
class TransactionTables:
    """The tables of a transaction, which the journal holds beside its record.

    `folders` are made by the transaction and removed by a rollback. `remove` are folders that are removed once it is
    committed. `units` are those that it stops or starts, each with whether it ran before.
    """

    targets: tuple[TargetPath, ...]
    folders: tuple[str, ...]
    remove: tuple[str, ...]
    units: tuple[tuple[str, bool], ...]


def remaining_s(record: TransactionRecord, now: Clocks) -> float:
    """Return the seconds until the transaction's first deadline; 0 when it has passed.

    After a boot, a wall clock that is before the transaction's start is useless: no time is left then.
    """
    if now.boot_id == record.boot_id:
        return max(0.0, record.deadline_boot_s - now.boot_s)
    if now.wall_s < record.started_s:
        return 0.0
    return max(0.0, record.deadline_wall_s - now.wall_s)


def read_clocks(root: Path = Path("/")) -> Clocks:
    """Return the present time of this machine's clocks."""
    return Clocks(time.time(), boot_s(), boot_id(root))


class TransactionJournal:
    """The journal in its folder; nothing is kept in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> TransactionRecord | None:
        """Return the record; None when there is none.

        Raises:
            TransactionJournalError: the record cannot be read, or is not valid.
        """
        path = self.folder / "state"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransactionJournalError(f"cannot read {path}: {error.strerror}", "run it as root") from error
        try:
            return _record(dict(line.partition("=")[::2] for line in lines))
        except (ValueError, KeyError) as error:
            raise TransactionJournalError(f"cannot understand {path}: {error}", "edgegpu-recover show") from error

    def write(self, record: TransactionRecord, *, note: str = "") -> None:
        """Write the record to the disk, and a line to the log; `note` stands in that line alone.

        Raises:
            TransactionJournalError: the state may not follow the present one (a bug of ours).
            InstallError: the record cannot be written.
        """
        last = self.read()
        if last is not None and last.id == record.id and not may_follow(last.state, record.state):
            raise TransactionJournalError(f"cannot go from {last.state} to {record.state}")
        self.log(f"{record.id} {record.op} {record.state} {_one_line(f'{note} {record.why}')}".rstrip())
        text = "".join(f"{field.name}={_one_line(_text(getattr(record, field.name)))}\n" for field in fields(record))
        atomic.write(self.folder / "state", text.encode())

    def begin(self, transaction: str, tables: TransactionTables) -> None:
        """Write everything that a rollback needs to the disk; the record is written when recovery is in place.

        Raises:
            InstallError: the journal cannot be written.
        """
        for folder in (self.folder.parent, self.folder):
            atomic.make_folder(folder, mode=0o750 if folder is self.folder.parent else 0o700)
        for name in (atomic.OLD, atomic.NEW):
            atomic.make_folder(self.folder / name, mode=0o700)
        try:
            for target in tables.targets:
                for name, entry in ((atomic.OLD, target.old), (atomic.NEW, target.new)):
                    atomic.create(self.folder / name / str(target.number), entry)
            for name in (atomic.OLD, atomic.NEW):
                sync_folder(self.folder / name)
        except OSError as error:
            raise InstallError(f"cannot write the journal: {error.strerror}", "free space on /var/lib") from error
        self._table("spare", [" " * _SPARE_BYTES])
        self._table("folders", tables.folders)
        self._table("remove", tables.remove)
        self._table("units", [f"{'active' if ran else 'inactive'} {unit}" for unit, ran in tables.units])
        self._table("files", [f"id {transaction} - - -", *(target.row for target in tables.targets)])

    def tables(self) -> TransactionTables:
        """Return the tables that `begin` has written.

        Raises:
            InstallError: the tables are missing or cannot be read.
        """
        try:
            rows = [line.split(" ", 4) for line in self._lines("files")[1:]]
            units = [line.split(" ", 1) for line in self._lines("units")]
            return TransactionTables(
                targets=tuple(self._target(row) for row in rows),
                folders=tuple(self._lines("folders")),
                remove=tuple(self._lines("remove")),
                units=tuple((unit, ran == "active") for ran, unit in units),
            )
        except (OSError, ValueError, IndexError) as error:
            raise TransactionJournalError(
                f"cannot read the tables in {self.folder}: {error}", "edgegpu-recover show"
            ) from error

    def log(self, text: str) -> None:
        """Add a line to the history and sync it; a failure to write it is ignored."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            with (self.folder / "log").open("a", encoding="utf-8") as file:
                file.write(f"{stamp} {text}\n")
                file.flush()
                os.fsync(file.fileno())  # else a power cut leaves zeros instead of the line
        except OSError:
            return

    def history(self) -> tuple[str, ...]:
        """Return the lines of the history, oldest first."""
        try:
            text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            return tuple(text.replace("\0", "").splitlines())  # edgegpu-recover, in shell, cannot fsync its lines
        except OSError:
            return ()

    def state_of(self, transaction: str) -> TransactionState | None:
        """Return the state of the transaction with this id; None when it never began, as far as is known.

        Transactions before the last one are known from the history, of which the last 300 lines are kept. When such a
        transaction's last line there is no final state, it died before its record was written.

        Raises:
            TransactionJournalError: the record cannot be read.
        """
        record = self.read()
        if record is not None and record.id == transaction:
            return record.state
        said = [words[3] for words in map(str.split, self.history()) if words[1:2] == [transaction] and words[3:]]
        ended = said and said[-1] in {state.value for state in TERMINAL}
        return TransactionState(said[-1]) if ended else None

    def _lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text(encoding="utf-8").splitlines()

    def _target(self, row: Sequence[str]) -> TargetPath:
        number, flags, _, _, path = row
        old, new = (read_entry(self.folder / name / number) for name in (atomic.OLD, atomic.NEW))
        change = FileChange(
            path,
            content=new.content,
            link_to=new.link_to,
            mode=new.mode,
            owner=(new.uid, new.gid),
            k3s_reads="k" in flags,
            early="e" in flags,
        )
        return TargetPath(int(number), change, old, new)

    def _table(self, name: str, rows: Sequence[str]) -> None:
        atomic.write(self.folder / name, "".join(f"{row}\n" for row in rows).encode())


def next_record(
    record: TransactionRecord, state: TransactionState, *, why: str = "", attempts: int | None = None
) -> TransactionRecord:
    """Return a record with another state."""
    return replace(record, state=state, why=why, attempts=record.attempts if attempts is None else attempts)


def author() -> str:
    """Return this process as `PID:START` for the journal; a process with a reused pid has another start time."""
    pid = os.getpid()
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}:"
    return f"{pid}:{after_name[19]}"


def _record(values: dict[str, str]) -> TransactionRecord:
    """Return the record of a file's values; a missing value counts as empty. Raises ValueError or KeyError."""
    parsers: dict[Any, Callable[[str], Any]] = {int: lambda text: int(text or 0), bool: lambda text: text == "1"}
    found: dict[str, Any] = {}
    for field in fields(TransactionRecord):
        text = values[field.name] if field.default is MISSING else values.get(field.name, "")
        parse: Any = parsers.get(field.type, field.type)
        found[field.name] = parse(text)
    return TransactionRecord(**found)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def decide(record: TransactionRecord, now: Clocks, *, proc: Path | None) -> RecoveryDecision:
    """Return what to do about a record. `proc` is /proc, by which the author is found; None: it is known to be dead."""
    return after_crash(
        record.state,
        same_boot=record.boot_id == now.boot_id,
        deadline_passed=remaining_s(record, now) == 0,
        attempts=record.attempts,
        author_alive=proc is not None and is_alive(record.author, proc=proc),
    )


def is_alive(author: str, *, proc: Path) -> bool:
    """Return whether the process `PID:START` of the journal still runs; a reused pid has another start time."""
    pid, _, start = author.partition(":")
    try:
        fields = (proc / pid / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return bool(pid) and fields[0] not in {"Z", "X"} and fields[19] == start
