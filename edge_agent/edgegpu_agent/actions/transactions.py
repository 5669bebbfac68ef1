"""The installer as the agent runs it: a process that may outlive the agent, and a journal that says how it ended."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from edgegpu_agent.actions.programs import ActionTimer, ProgramOutput, RunningProgram, runs_with
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.lock import BEGUN, LOCK, shared
from edgegpu_installer.transaction.states import TERMINAL, TransactionState
from edgegpu_sync.rules.ops import Evidence, transaction_evidence

_OPTION = "--transaction-id"

_INODE = 5
_LOOK_S = 0.5
_BUSY_S = 5.0


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """A transaction that was committed; `changed`: it changed the machine."""

    changed: bool = True


@dataclass(frozen=True, slots=True)
class TransactionRolledBack:
    """A transaction that was begun and undone: the machine is as before."""

    why: str


@dataclass(frozen=True, slots=True)
class TransactionBroken:
    """A transaction that was begun and could not be undone."""

    why: str


@dataclass(frozen=True, slots=True)
class RefusedTransaction:
    """A transaction that the installer refused to begin; `why` and `code` are the installer's text and error code."""

    why: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class TransactionUnknown:
    """An installer that ended without an answer or a record in the journal: as far as is known, it began nothing."""

    why: str


End = TransactionCommitted | TransactionRolledBack | TransactionBroken | RefusedTransaction | TransactionUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallerRunner:
    """A runner of transactions, which also finds out how they ended.

    `program` is the command line that begins one; its process holds the lock `begun` while it runs, also when the agent
    ends. `lasts_s`: a longer transaction is killed, and the dead-man undoes it. `patience_s`: how long to retry while
    somebody else changes the machine, or k3s starts (`settles`): a box gets commands as soon as its agent runs, which
    is before k3s does.
    """

    journal: TransactionJournal
    timer: ActionTimer
    begun: Path
    program: Sequence[str] = ("/opt/edgegpu/current/bin/edgegpu",)
    proc: Path = Path("/proc")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    lasts_s: float = 900.0
    patience_s: float = 600.0
    settles: Callable[[], bool] = lambda: False

    def evidence(self, id_: str) -> Evidence:
        """Return what is known of the transaction with this id; UNDER_WAY while its process lives."""
        if runs_with((_OPTION, id_), proc=self.proc):
            return Evidence.UNDER_WAY
        try:
            return transaction_evidence(self.journal.state_of(id_))
        except InstallError:
            return Evidence.UNREADABLE

    def carry_out(self, id_: str, words: Sequence[str], *, program: Sequence[str] = ()) -> End:
        """Begin a transaction, and wait for its end; wait first, within `patience_s`, for somebody else's change.

        Args:
            id_: the id of the transaction, never used before.
            words: the words of the command line, `install` and its options.
            program: the command line of another version.

        Raises:
            ActionStopped: the agent ends; the transaction goes on.
        """
        command = [*(program or self.program), *words, "--json", _OPTION, id_]
        deadline = self.timer.now_s() + self.patience_s
        while True:
            end = self._once(id_, command)
            if not isinstance(end, RefusedTransaction) or self.timer.now_s() >= deadline:
                return end
            if end.code != "BUSY" and not self.settles():
                return end
            self.timer.pause(_BUSY_S)

    def _once(self, id_: str, command: Sequence[str]) -> End:
        try:
            with shared(self.begun) as held:
                process = RunningProgram(command, env=self.env, holds=[held])
        except OSError as error:
            return TransactionUnknown(f"cannot run {command[0]}: {error.strerror} ({error.filename})")
        said = process.wait(self.timer, within_s=self.lasts_s, outlives=True)
        end = _read(said)
        if isinstance(end, TransactionUnknown) or (isinstance(end, RefusedTransaction) and end.code == "KNOWN"):
            return self.await_end(id_, why=end.why)
        return end

    def await_end(self, id_: str, *, why: str = "") -> End:
        """Wait until the transaction has ended, whoever ends it; TransactionUnknown where it was never begun.

        Raises:
            ActionStopped: the agent ends.
        """

        def look() -> End | None:
            return self._ended(self.evidence(id_), id_, why)

        within_s = self.lasts_s + self.patience_s
        found = self.timer.wait_for(look, every_s=_LOOK_S, within_s=within_s)
        end = cast("End | None", found)  # mypy joins it to object
        return end or TransactionBroken("nobody has finished it; edgegpu doctor says more")

    def _ended(self, evidence: Evidence, id_: str, why: str) -> End | None:
        match evidence:
            case Evidence.DONE:
                return TransactionCommitted()
            case Evidence.PUT_BACK:
                return TransactionRolledBack(self._why(id_))
            case Evidence.BROKEN:
                return TransactionBroken(self._why(id_))
            case Evidence.NOT_DONE:
                return TransactionUnknown(why or "it was not begun")
            case _:
                return None

    def _why(self, id_: str) -> str:
        try:
            record = self.journal.read()
        except InstallError as error:
            return str(error)
        return record.why if record is not None and record.id == id_ else "see edgegpu transaction show --history"


def is_change_under_way(layout: Layout) -> bool:
    """Return whether a change of the machine is under way, or about to be.

    There are three cases. Somebody holds the lock. Or the author of a change died, and the change will be finished
    within seconds, which may restart units. Or an installer that an earlier agent process has begun still reads the
    machine, and holds only BEGUN. This reads the kernel's list of locks: to try the lock would keep an installer out
    for a moment.

    Raises:
        OSError: the kernel's list cannot be read.
    """
    try:
        record = TransactionJournal(layout.tx).read()
    except InstallError:
        record = None
    if record is not None and record.state not in TERMINAL | {TransactionState.INCONSISTENT}:
        return True
    inodes = set()
    for path in (LOCK, BEGUN):
        with contextlib.suppress(FileNotFoundError):  # they are gone after a boot
            inodes.add(str(layout.at(path).stat().st_ino))
    rows = [line.replace("-> ", "").split() for line in layout.at("/proc/locks").read_text().splitlines()]
    return any(row[1:2] == ["FLOCK"] and row[_INODE].rpartition(":")[2] in inodes for row in rows if len(row) > _INODE)


def _read(said: ProgramOutput) -> End:
    try:
        value = json.loads(said.text)
        if "error" in value:
            words = (str(value["error"]), str(value.get("remedy") or ""))
            return RefusedTransaction("\n".join(filter(None, words)), str(value.get("code") or ""))
        state, why = TransactionState(value["state"]), str(value.get("why") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return TransactionUnknown(f"the installer ended without an answer: {said.last_line}")
    match state:
        case TransactionState.COMMITTED:
            return TransactionCommitted(changed=value.get("changed") is not False)
        case TransactionState.ROLLED_BACK:
            return TransactionRolledBack(why)
        case _:
            return TransactionBroken(why)
