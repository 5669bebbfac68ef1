"""The preparation of a transaction: what a plan changes on the present machine, and the first record."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edgegpu_installer.changes import Plan, TransactionKind
from edgegpu_installer.layout import AGENT_UNIT, RECOVER_UNIT, UNITS, Layout
from edgegpu_installer.machine.atomic import read_entry, wanted
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan.release import Recovery
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.agent_health import AgentCondition, WantedAgent, standing
from edgegpu_installer.transaction.journal import TargetPath, TransactionRecord, TransactionTables, author, read_clocks
from edgegpu_installer.transaction.states import TransactionState

GRACE_S = 10
"""How long after its deadline an author may take to begin the rollback before the dead-man does it."""


@dataclass(frozen=True, slots=True)
class TransactionMachine:
    """The machine that a transaction changes, with the settings of the transaction.

    `say` gets lines for the user. `at_step` is called before and after each step, with `before-NAME` and `after-NAME`.
    `settle_s`, `wait_s`: how long k3s must stay up after a rollback, and may take for that.
    """

    layout: Layout
    system: Systemd
    recovery: Recovery
    say: Callable[[str], None]
    at_step: Callable[[str], None] = field(default=lambda _: None)
    version: str = ""
    transaction_id: str = ""
    """The id of the next transaction; when it is empty, the id is random."""
    user: str = ""
    """Who runs the installer, for the journal's history."""
    settle_s: int = 10
    wait_s: int = 180
    agent_steady_s: float = 10.0
    """How long an upgraded agent must run without a restart."""
    agent_within_s: float = 60.0
    """Within how long it must have done that, and be as well as the old one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with the changes that have an effect; `restarts`: whether k3s reads a file that changes."""

    plan: Plan
    tables: TransactionTables
    restarts: bool

    @property
    def is_done(self) -> bool:
        """Whether the machine is already as the plan wants it; an uninstall has at least the journal to remove."""
        return not self.tables.targets and self.plan.op is not TransactionKind.UNINSTALL

    @property
    def early(self) -> tuple[TargetPath, ...]:
        """The targets that are in place before the transaction begins; an uninstall removes them after its end."""
        if self.plan.op is TransactionKind.UNINSTALL:
            return ()
        return tuple(target for target in self.tables.targets if target.change.early)

    @property
    def swapped(self) -> tuple[TargetPath, ...]:
        """The targets that the transaction replaces."""
        return tuple(target for target in self.tables.targets if not target.change.early)


def prepare(plan: Plan, machine: TransactionMachine) -> Prepared:
    """Add the files of recovery to a plan, and drop the changes without effect.

    Raises:
        InstallError: a path of the plan cannot be read, or is neither file nor link.
        SystemdError: systemd does not give the state of the plan's units.
    """
    layout = machine.layout
    plan = machine.recovery.into(plan)
    entries = ((change, read_entry(layout.at(change.path)), wanted(change)) for change in plan.files)
    changing = [entry for entry in entries if entry[1] != entry[2]]
    targets = tuple(TargetPath(number, *entry) for number, entry in enumerate(changing, 1))
    if any(target.change.path == f"{UNITS}/{RECOVER_UNIT}" for target in targets):
        plan = replace(plan, reload=True)
    units = dict.fromkeys((*plan.stop, *plan.start)) if targets else {}
    tables = TransactionTables(
        targets=targets,
        folders=tuple(folder for folder in plan.folders if not layout.at(folder).is_dir()),
        remove=baseline.folders(layout) if plan.op is TransactionKind.UNINSTALL else (),
        units=tuple((unit, machine.system.unit(unit).active in {"active", "activating"}) for unit in units),
    )
    read = any(target.change.k3s_reads for target in targets)
    return Prepared(plan, tables, restarts=plan.restart is not None and read)


def restart_notice(prepared: Prepared) -> str:
    """Return the notice of an upgrade that restarts k3s, which is rare; empty when it does not."""
    plan = prepared.plan
    if plan.op is not TransactionKind.UPGRADE or not prepared.restarts:
        return ""
    paths = " and ".join(target.change.path for target in prepared.tables.targets if target.change.k3s_reads)
    return (
        f"this upgrade needs one restart of {plan.restart}, which comes now: it changes {paths}; "
        "running containers go on"
    )


def first_record(prepared: Prepared, machine: TransactionMachine, deadline_s: float) -> TransactionRecord:
    """Return the first record of a transaction that begins now."""
    now = read_clocks()
    unit = prepared.plan.restart or ""
    k3s = machine.system.unit(unit) if unit else None
    return TransactionRecord(
        id=machine.transaction_id or uuid.uuid4().hex[:12],
        op=prepared.plan.op,
        state=TransactionState.PREPARED,
        boot_id=now.boot_id,
        started_s=int(now.wall_s),
        deadline_wall_s=int(now.wall_s + deadline_s + GRACE_S),
        deadline_boot_s=int(now.boot_s + deadline_s + GRACE_S),
        author=author(),
        unit=unit,
        restart=prepared.restarts,
        reload=prepared.plan.reload,
        invocation=k3s.invocation if k3s else "",
        was=k3s.active if k3s else "",
        settle_s=machine.settle_s,
        wait_s=machine.wait_s,
        version=machine.version,
        agent=standing(machine.layout).value if prepared.plan.op is TransactionKind.UPGRADE else "",
    )


def wanted_agent(
    record: TransactionRecord, tables: TransactionTables, machine: TransactionMachine
) -> WantedAgent | None:
    """Return the agent that an upgrade must lead to: a box gets commands only by it. None for other changes."""
    if record.op is not TransactionKind.UPGRADE or AGENT_UNIT not in dict(tables.units):
        return None
    return WantedAgent(
        version=record.version,
        before=AgentCondition(record.agent),
        steady_s=machine.agent_steady_s,
        within_s=machine.agent_within_s,
    )
