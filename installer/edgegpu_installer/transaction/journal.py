"""The journal of the last transaction, as a shell can read it: one record, tables, old and new contents, a log."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from edgegpu_base.files import sync_folder
from edgegpu_base.process.clocks import boot_id, boot_s
from edgegpu_installer.changes import FileChange, TransactionKind
from edgegpu_installer.errors import InstallError, TransactionJournalError
from edgegpu_installer.machine import atomic
from edgegpu_installer.machine.atomic import PathEntry, read_entry
from edgegpu_installer.transaction.states import TERMINAL, RecoveryDecision, TransactionState, after_crash, may_follow

_SPARE_BYTES = 4096
"""Room for the records of an undoing, on a disk that fills up meanwhile."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What the journal says of a transaction.

    `deadline_boot_s` is of CLOCK_BOOTTIME and counts while `boot_id` is this boot's; after another boot
    `deadline_wall_s` does, as far as the clock is not behind `started_s`. `author`: its pid and start time. `unit`: the
    k3s unit, `restart`: whether what it reads changes, `invocation`: the start of it that is known to have read the old
    files (`later`: any from now on), `was`: how it was then. `settle_s`, `wait_s`: how long k3s must stay up when it is
    undone, and may take for that. `agent`: how the agent stood before an upgrade (see agent_health).
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
    """The clocks of this machine: wall and CLOCK_BOOTTIME in seconds, and which boot it is."""

    wall_s: float
    boot_s: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class TargetPath:
    """One path of a transaction with what it held and shall hold; `number` names the contents in the journal."""

    number: int
    change: FileChange
    old: PathEntry
    new: PathEntry

    @property
    def row(self) -> str:
        """Its line in the table `files`."""
        flags = ("k" if self.change.k3s_reads else "") + ("e" if self.change.early else "") or "-"
        return f"{self.number} {flags} {self.old.kind} {self.new.kind} {self.change.path}"


@dataclass(frozen=True, slots=True)
class TransactionTables:
    """What a transaction is about, beside its record.

    `folders` are made by it and go when it is undone, `remove` are folders that go once it is committed, `units` are
    those that it stops or starts, with whether they ran before.
    """

    targets: tuple[TargetPath, ...]
    folders: tuple[str, ...]
    remove: tuple[str, ...]
    units: tuple[tuple[str, bool], ...]


def remaining_s(record: TransactionRecord, now: Clocks) -> float:
    """Return how many seconds the transaction has until its first deadline; 0 when it has passed.

    After a boot a wall clock that stands before the transaction's start says nothing: no time is left then.
    """
    if now.boot_id == record.boot_id:
        return max(0.0, record.deadline_boot_s - now.boot_s)
    if now.wall_s < record.started_s:
        return 0.0
    return max(0.0, record.deadline_wall_s - now.wall_s)


def read_now(root: Path = Path("/")) -> Clocks:
    """Return this machine's clocks."""
    return Clocks(time.time(), boot_s(), boot_id(root))


class TransactionJournal:
    """The folder of the journal; nothing is in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> TransactionRecord | None:
        """Return the record; None where there is none.

        Raises:
            JournalError: it cannot be read, or is not one.
        """
        path = self.folder / "state"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransactionJournalError(f"cannot read {path}: {error.strerror}", "only root may") from error
        try:
            return _record(dict(line.partition("=")[::2] for line in lines))
        except (ValueError, KeyError) as error:
            raise TransactionJournalError(f"cannot understand {path}: {error}", "edgegpu-recover show") from error

    def write(self, record: TransactionRecord) -> None:
        """Put the record on the disk, and a line into the log.

        Raises:
            JournalError: it may not follow what stands there (which would be our own fault).
            InstallError: it cannot be written.
        """
        last = self.read()
        if last is not None and last.id == record.id and not may_follow(last.state, record.state):
            raise TransactionJournalError(f"cannot go from {last.state} to {record.state}")
        self.log(f"{record.id} {record.op} {record.state} {_one_line(record.why)}".rstrip())
        text = "".join(f"{field.name}={_one_line(_text(getattr(record, field.name)))}\n" for field in fields(record))
        atomic.write(self.folder / "state", text.encode())

    def begin(self, transaction: str, tables: TransactionTables) -> None:
        """Put all that undoing needs on the disk; the record follows when recovery can read it.

        Raises:
            InstallError: it cannot be written.
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
        """Return what `begin` has put on the disk.

        Raises:
            InstallError: it is not there, or cannot be read.
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
        """Add a line to the history, on the disk when this returns; one that cannot be written stops nothing."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            with (self.folder / "log").open("a", encoding="utf-8") as file:
                file.write(f"{stamp} {text}\n")
                file.flush()
                os.fsync(file.fileno())  # else a power cut leaves zeros where it was
        except OSError:
            return

    def history(self) -> tuple[str, ...]:
        """Return the lines of the history, oldest first."""
        try:
            text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            return tuple(text.replace("\0", "").splitlines())  # the shell that undoes cannot fsync what it adds
        except OSError:
            return ()

    def state_of(self, transaction: str) -> TransactionState | None:
        """Return how far the transaction with this id has come; None: it was never begun, as far as is known.

        Earlier ones than the last are known by the history, of which the last 300 lines are kept. A line there that is
        no end, of a transaction that is not the last one, is of one that died before its record was written.

        Raises:
            JournalError: the record cannot be read.
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
    """Return the record at another state."""
    return replace(record, state=state, why=why, attempts=record.attempts if attempts is None else attempts)


def author() -> str:
    """Return this process as the journal names it: pid and start time, so that a pid that is used again is another."""
    pid = os.getpid()
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}:"
    return f"{pid}:{after_name[19]}"


def _record(values: dict[str, str]) -> TransactionRecord:
    def number(name: str) -> int:
        return int(values.get(name) or 0)

    return TransactionRecord(
        id=values["id"],
        op=TransactionKind(values["op"]),
        state=TransactionState(values["state"]),
        boot_id=values.get("boot_id", ""),
        started_s=number("started_s"),
        deadline_wall_s=number("deadline_wall_s"),
        deadline_boot_s=number("deadline_boot_s"),
        attempts=number("attempts"),
        author=values.get("author", ""),
        unit=values.get("unit", ""),
        restart=values.get("restart") == "1",
        reload=values.get("reload") == "1",
        invocation=values.get("invocation", ""),
        was=values.get("was", ""),
        settle_s=number("settle_s"),
        wait_s=number("wait_s"),
        version=values.get("version", ""),
        agent=values.get("agent", ""),
        why=values.get("why", ""),
    )


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def decide(record: TransactionRecord, now: Clocks, *, proc: Path | None) -> RecoveryDecision:
    """Return what is to be done; the kernel's /proc tells whether the author lives, None: its lock says it is dead."""
    return after_crash(
        record.state,
        same_boot=record.boot_id == now.boot_id,
        deadline_passed=remaining_s(record, now) == 0,
        attempts=record.attempts,
        author_alive=proc is not None and is_alive(record.author, proc=proc),
    )


def is_alive(author: str, *, proc: Path) -> bool:
    """Say whether a process that the journal names as `PID:START` still runs; a pid that is used again is another."""
    pid, _, start = author.partition(":")
    try:
        fields = (proc / pid / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return bool(pid) and fields[0] not in {"Z", "X"} and fields[19] == start
