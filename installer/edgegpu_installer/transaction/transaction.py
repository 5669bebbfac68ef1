"""Transactions: a change of the machine goes forward step by step, and edgegpu-recover undoes one that fails."""

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.process.clocks import boot_s
from edgegpu_installer.changes import LEAVING, Deadline, Plan, TransactionKind
from edgegpu_installer.errors import InstallError, KnownError, SystemdError
from edgegpu_installer.layout import RUN_UNITS, UNITS, Layout
from edgegpu_installer.machine.atomic import make_folder, read_entry, stage, swap, write
from edgegpu_installer.machine.cards import make_device_links
from edgegpu_installer.transaction import agent_health, baseline
from edgegpu_installer.transaction.ended import RESUME, begin_note
from edgegpu_installer.transaction.farewell import UNIT as FAREWELL
from edgegpu_installer.transaction.journal import (
    TargetPath,
    TransactionJournal,
    TransactionRecord,
    decide,
    next_record,
    read_clocks,
    remaining_s,
)
from edgegpu_installer.transaction.lock import LOCK, SignalGuard, locked
from edgegpu_installer.transaction.prepare import (
    GRACE_S,
    Prepared,
    TransactionMachine,
    first_record,
    prepare,
    restart_notice,
    wanted_agent,
)
from edgegpu_installer.transaction.states import TERMINAL, RecoveryDecision, TransactionState

_log = logging.getLogger(__name__)

Verify = Callable[[Deadline], None]
"""A function that checks that the machine works with the new files; it raises InstallError by the deadline if not."""

_AGAIN_S = 30.0
"""After how long edgegpu-recover tries again what this process could not undo, or not tidy up."""


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """How a transaction ended; `changed`: whether it changed the machine."""

    state: TransactionState
    changed: bool
    why: str = ""


def run(
    plan: Plan,
    machine: TransactionMachine,
    *,
    verify: Verify,
    drain: Callable[[Deadline], None] = lambda _deadline: None,
    deadline_s: float = 600.0,
) -> TransactionOutcome:
    """Carry a plan out and return its end: COMMITTED, ROLLED_BACK with the reason, or INCONSISTENT with what is where.

    A plan that changes no file does nothing. From the first change on the dead-man is armed: if this process has not
    finished after `deadline_s` (it hangs, or was killed), everything is rolled back. SIGINT, SIGTERM and SIGHUP roll
    back. An unfinished transaction of an author who died is rolled back first. `drain`: for a plan that takes sharing
    off, waits until the node offers no more than its pods hold.

    Raises:
        BusyError: another process is changing this machine.
        KnownError: a transaction with `machine.transaction_id` has already run.
        InstallError: an earlier transaction cannot be undone, or a path of the plan cannot be read.
    """
    with locked(machine.layout.at(LOCK)) as lock, SignalGuard() as signals:
        _refuse_known_id(machine)
        _undo_unfinished(machine, lock)
        prepared = prepare(plan, machine)
        if prepared.is_done:
            return TransactionOutcome(TransactionState.COMMITTED, changed=False)
        if notice := restart_notice(prepared):
            machine.say(notice)
        record = first_record(prepared, machine, deadline_s)
        transaction = _Transaction(machine, record, lock, signals)
        return transaction.run_or_undo(lambda: transaction.run_all(prepared, verify, drain))


def resume(machine: TransactionMachine, *, verify: Verify) -> TransactionOutcome | None:
    """Finish the transaction of an author who died, as states.after_crash decides; None when there is none.

    Raises:
        BusyError: its author is still running.
        InstallError: the journal cannot be read.
    """
    with locked(machine.layout.at(LOCK)) as lock, SignalGuard() as signals:
        journal = TransactionJournal(machine.layout.tx)
        record = journal.read()
        if record is None:
            _tidy(machine, lock)
            return None
        decision = decide(record, read_clocks(), proc=None)
        if decision is RecoveryDecision.NOTHING:
            _tidy(machine, lock)
            return TransactionOutcome(record.state, changed=False, why=record.why)
        journal.log(f"{record.id} {record.op} {record.state} by={RESUME}")
        if decision is RecoveryDecision.VERIFY:
            transaction = _Transaction(machine, record, lock, signals)
            return transaction.run_or_undo(lambda: transaction.continue_after_crash(verify))
        signals.hold()
        return _undo(machine, lock, record, f"its author died at {record.state}")


class _Transaction:
    """A running transaction; its state is in the journal, not in this object."""

    def __init__(self, machine: TransactionMachine, record: TransactionRecord, lock: int, signals: SignalGuard) -> None:
        self._machine = machine
        self._layout = machine.layout
        self._system = machine.system
        self._journal = TransactionJournal(machine.layout.tx)
        self._record = record
        self._lock = lock
        self._signals = signals

    def run_or_undo(self, go: Callable[[], None]) -> TransactionOutcome:
        """Run the steps of `go`; undo the transaction when one fails."""
        try:
            go()
        except InstallError as error:
            return self._give_up(str(error))
        except Exception as error:  # noqa: BLE001  (where a task ends: after any error the change must be undone)
            _log.exception("the transaction failed for a reason that nobody thought of")
            return self._give_up(f"{type(error).__name__}: {error}")
        return TransactionOutcome(TransactionState.COMMITTED, changed=True)

    def _give_up(self, why: str) -> TransactionOutcome:
        self._signals.hold()
        self._machine.say(f"undoing: {why}")
        outcome = _undo(self._machine, self._lock, self._record, why)
        if self._record.op is TransactionKind.INSTALL and outcome.state is TransactionState.ROLLED_BACK:
            _remove_state(self._layout)
        return outcome

    def run_all(self, prepared: Prepared, verify: Verify, drain: Callable[[Deadline], None]) -> None:
        """Carry out all steps from the backups to the commit."""
        self._make_ready(prepared)
        if prepared.plan.op in LEAVING:
            with self._step("drain"):
                drain(self._deadline())
        with self._step("stage"):
            self._make_folders(prepared)
            for target in prepared.swapped:
                stage(self._at(target), target.new)
        self._enter(TransactionState.STAGED)
        self._enter(TransactionState.SWAPPED)
        self._replace(prepared)
        if self._record.restart:
            self._enter(TransactionState.RESTARTING, attempts=1)
            with self._step("restart"):
                self._machine.say(f"restarting {self._record.unit}")
                self._system.restart_no_block(self._record.unit)
        self._verify(verify)

    def continue_after_crash(self, verify: Verify) -> None:
        """Continue from RESTARTING or VERIFYING, within the deadline of the dead author."""
        record = self._record
        if record.state is TransactionState.RESTARTING and record.restart:
            with self._step("restart"):
                if self._system.unit(record.unit).invocation == record.invocation:
                    self._system.restart_no_block(record.unit)
        self._verify(verify)

    def _make_ready(self, prepared: Prepared) -> None:
        """Put in place all that a boot or the dead-man needs to undo the rest, and then write PREPARED."""
        with self._step("backups"):
            self._journal.begin(self._record.id, prepared.tables)
        with self._step("arm"):
            self._system.arm_deadman(remaining_s(self._record, read_clocks()) + 1)
        for target in prepared.early:
            with self._step(f"early-{target.number}"):
                self._make_folders(prepared, above=target.change.path)
                stage(self._at(target), target.new)
                swap(self._at(target), target.new)
        before = read_entry(self._layout.current).link_to
        machine = self._machine
        note = begin_note(user=machine.user, version=machine.version, before=Path(before or "").name)
        self._enter(TransactionState.PREPARED, note=note)

    def _make_folders(self, prepared: Prepared, *, above: str = "") -> None:
        """Make the plan's folders, or only those above a path: until PREPARED a boot could not remove the others."""
        for folder in prepared.tables.folders:
            if not above or above.startswith(f"{folder}/"):
                make_folder(self._layout.at(folder))

    def _replace(self, prepared: Prepared) -> None:
        plan = prepared.plan
        if plan.op in LEAVING:
            _copy_units_to_run(self._layout, plan.stop)  # these units run until k3s has been restarted
        else:
            self._stop(plan.stop)
        for target in prepared.swapped:
            with self._step(f"swap-{target.number}"):
                if read_entry(self._at(target)) != target.old:
                    raise InstallError(f"cannot replace {target.change.path}: somebody changed it meanwhile")
                swap(self._at(target), target.new)
        if plan.reload:
            with self._step("reload"):
                make_device_links(self._layout.root)  # before any reload of ours; its docstring says why
                self._system.daemon_reload()
        if plan.start:
            with self._step("start"):
                for unit in plan.start:
                    self._machine.say(f"starting {unit}")
                    self._system.restart(unit)

    def _verify(self, verify: Verify) -> None:
        self._enter(TransactionState.VERIFYING)
        deadline = self._deadline()
        began_s = deadline.clock()
        with self._step("verify"):
            self._machine.say("verifying that everything runs as it should, and stays up")
            verify(deadline)
            if (agent := wanted_agent(self._record, self._journal.tables(), self._machine)) is not None:
                self._machine.say(f"verifying that edgegpu-agent {agent.version} runs and is connected as before")
                agent_health.verify(agent, self._system, self._layout, deadline=self._deadline())
        self._machine.say(f"verified in {deadline.clock() - began_s:.0f} s")
        if self._record.op in LEAVING:
            # Only after k3s has been restarted: a kubelet that starts without the plugin ends pods whose containers
            # have ended once before, although they run now (seen on 1.33).
            self._stop([unit for unit, _ in self._journal.tables().units if unit != FAREWELL])
        if self._record.op is not TransactionKind.UNINSTALL:
            with self._step("baseline"):
                baseline.record(self._layout, self._record.id, self._journal.tables())
        self._signals.hold()
        self._enter(TransactionState.COMMITTED)
        with self._step("tidy"):
            _tidy(self._machine, self._lock)
        with self._step("disarm"):  # last: where this process is killed on the way, its service comes and tidies
            _disarm(self._machine)

    def _stop(self, units: Sequence[str]) -> None:
        if units:
            with self._step("stop"):
                for unit in units:
                    self._system.stop(unit)

    def _enter(self, state: TransactionState, *, attempts: int | None = None, note: str = "") -> None:
        with self._step(state.value):
            record = next_record(self._record, state, attempts=attempts)
            self._journal.write(record, note=note)
            self._record = record

    def _deadline(self) -> Deadline:
        return Deadline(boot_s() + remaining_s(self._record, read_clocks()) - GRACE_S, boot_s)

    def _at(self, target: TargetPath) -> Path:
        return self._layout.at(target.change.path)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self._machine.at_step(f"before-{name}")
        yield
        self._machine.at_step(f"after-{name}")


def _refuse_known_id(machine: TransactionMachine) -> None:
    """Refuse an id that was used: who gave it may have died before it learnt the result. Raises KnownError."""
    known = machine.transaction_id and TransactionJournal(machine.layout.tx).state_of(machine.transaction_id)
    if known:
        raise KnownError(f"cannot begin {machine.transaction_id} again: it is at {known}", "edgegpu transaction show")


def _undo_unfinished(machine: TransactionMachine, lock: int) -> None:
    """Undo an earlier unfinished transaction, so that the next one starts from verified files."""
    record = TransactionJournal(machine.layout.tx).read()
    if record is None or record.state in TERMINAL:
        _tidy(machine, lock)
        return
    machine.say(f"undoing the {record.op} that stopped at {record.state}")
    outcome = _undo(machine, lock, record, f"its author died at {record.state}, and another change begins")
    if outcome.state not in TERMINAL:
        raise InstallError(f"cannot undo the last {record.op}: {outcome.why}", "edgegpu-recover show")


def _undo(machine: TransactionMachine, lock: int, record: TransactionRecord, why: str) -> TransactionOutcome:
    """Let edgegpu-recover undo a transaction, and return the outcome that the journal has."""
    _run_recover(machine, lock, "undo", why)
    found = TransactionJournal(machine.layout.tx).read()
    if found is None or found.id != record.id:  # the transaction had not begun
        outcome = TransactionOutcome(TransactionState.ROLLED_BACK, changed=False, why=why)
    elif found.state in TERMINAL:
        outcome = TransactionOutcome(found.state, changed=found.state is TransactionState.COMMITTED, why=found.why)
    else:
        outcome = TransactionOutcome(TransactionState.INCONSISTENT, changed=True, why=found.why or why)
    if outcome.state in TERMINAL:
        _disarm(machine)
    else:
        _come_again(machine)
    return outcome


def _disarm(machine: TransactionMachine) -> None:
    """Disarm the dead-man where nothing is left for it: a dead-man that finds a transaction that has ended tidies."""
    if _is_tidy(machine.layout):
        with suppress(SystemdError):
            machine.system.disarm_deadman()
    else:
        _come_again(machine)


def _come_again(machine: TransactionMachine) -> None:
    with suppress(SystemdError):
        machine.system.arm_deadman(_AGAIN_S)


def _is_tidy(layout: Layout) -> bool:
    """Whether nothing is left that only the way needed; edgegpu-recover removes the list of it last."""
    return not (layout.tx / "files").exists()


_OF_THE_PLUGIN = (
    "inventory.json",
    "card-faults.json",
    "kubelet-version",
    "selftest.json",
    "live-limits.json",
    "images.json",
    "unknown-cluster",
    "kubelet-resolv.conf",
    "kubelet-resolv.conf.machine",
)
"""The files that the plugin writes into the state folder."""
_FOLDERS_OF_THE_PLUGIN = ("limiter",)
"""And the folders."""


def _remove_state(layout: Layout) -> None:
    """Remove the journal and state of a first installation that failed; its author has reported why."""
    if not layout.baseline.exists() and _is_tidy(layout):
        shutil.rmtree(layout.tx, ignore_errors=True)
        with suppress(OSError):
            for name in _OF_THE_PLUGIN:  # which may have run for a moment
                (layout.state / name).unlink(missing_ok=True)
            for name in _FOLDERS_OF_THE_PLUGIN:
                shutil.rmtree(layout.state / name, ignore_errors=True)
            layout.state.rmdir()


def _tidy(machine: TransactionMachine, lock: int) -> None:
    if machine.layout.tx.exists():
        _run_recover(machine, lock, "tidy")


def _run_recover(machine: TransactionMachine, lock: int, verb: str, *words: str) -> None:
    """Run edgegpu-recover with a verb and this process's lock, and pass on its lines.

    It runs to its end even when this process is killed. Its result is in the journal.
    """
    environment, program = dict(machine.system.environment), machine.recovery.program
    if machine.layout.root != Path("/"):
        environment["EDGEGPU_RECOVER_ROOT"] = str(machine.layout.root)
    try:
        child = subprocess.Popen(
            ["sh", program, verb, str(lock), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as error:
        machine.say(f"cannot run {program}: {os.strerror(error.errno or 0)}")
        return
    with child:
        for line in child.stderr or ():
            machine.say(line.rstrip())


def _copy_units_to_run(layout: Layout, units: Sequence[str]) -> None:
    """Copy the files of units that are stopped last to /run/systemd/system; edgegpu-recover removes the copies.

    A unit whose file is gone at a daemon-reload keeps its watchdog and loses the rest: its notifications are refused
    ("reception is disabled"), so the watchdog ends it after WatchdogSec=, and it is not started again (seen: systemd
    252).

    Raises:
        InstallError: a unit file cannot be read or copied.
    """
    for unit in units:
        found, copy = read_entry(layout.at(f"{UNITS}/{unit}")), layout.at(f"{RUN_UNITS}/{unit}")
        if found.content is None or copy.is_symlink():  # a link is a mask that somebody set
            continue
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InstallError(f"cannot write {copy}: {error.strerror}") from error
        write(copy, found.content, mode=found.mode)
