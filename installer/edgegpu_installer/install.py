"""Installation, change and upgrade of edgegpu on this machine: credentials, one transaction, node marks, a report."""

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from edgegpu_installer import prompts
from edgegpu_installer.changes import Deadline, FileChange, Plan, TransactionKind
from edgegpu_installer.cluster import accounts, lease, node_identity, nodes
from edgegpu_installer.cluster import app_limits_account as limits
from edgegpu_installer.cluster.app_limits_account import AppLimitsAccount
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import NODE
from edgegpu_installer.cluster.nodes import completeness, other_servers
from edgegpu_installer.cluster.rbac import Account
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, CURRENT, ETC, LIMITS_KUBECONFIG, PLUGIN_UNIT, UNITS
from edgegpu_installer.machine.atomic import read_entry, wanted
from edgegpu_installer.plan import credentials, unit_size
from edgegpu_installer.plan.dry_run import DryRun, of_install
from edgegpu_installer.plan.plan import plan_agent, plan_install
from edgegpu_installer.plan.plugin_config import configured_model
from edgegpu_installer.plan.release import Release
from edgegpu_installer.plan.site import InstallOptions, MachineRole, PlanCredentials, Site, role_of
from edgegpu_installer.prompts import Terminal
from edgegpu_installer.transaction import farewell, rollback_cleanup, transaction
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome, Verify
from edgegpu_installer.verify.conditions import look_again

_AGENT_READS = (f"{UNITS}/{AGENT_UNIT}", CURRENT, LIMITS_KUBECONFIG)
_PLUGIN_READS = (f"{UNITS}/{PLUGIN_UNIT}", CURRENT, ETC)
"""Prefixes of the paths whose change needs a restart of the running service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReport:
    """What an installation did; `outcome` is None after a dry run. `join` is a secret: other nodes' `--join` word."""

    op: TransactionKind
    outcome: TransactionOutcome | None
    role: MachineRole
    version: str
    plan: Plan
    restarted: bool = False
    lacking: tuple[str, ...] = ()
    join: str = field(default="", repr=False)
    cluster_changes: DryRun = field(default_factory=DryRun)
    """Of a dry run: what would be done to the cluster."""

    @property
    def succeeded(self) -> bool:
        """Whether the installation succeeded; True after a dry run."""
        return self.outcome is None or self.outcome.state is TransactionState.COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One run of the installer on one machine; `site` has passed the checks.

    `verifier` reads the state of the machine and returns the function that verifies a change; its argument says whether
    the node shall offer resources. `limits`: the account for app limits, None when this machine does not change it.
    `deadline_s`: an installation that takes longer is rolled back.
    """

    site: Site
    options: InstallOptions
    release: Release
    machine: TransactionMachine
    verifier: Callable[[bool], Verify]
    terminal: Terminal | None = None
    limits: AppLimitsAccount | None = None
    deadline_s: float = 600.0
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    def preview(self) -> InstallReport:
        """Return what an installation would change; nothing is written, on the machine or in the cluster."""
        layout = self.machine.layout
        role = role_of(self.site, self.options)
        certificates = None
        if role is not MachineRole.AGENT and not self.options.agent_only:
            certificates = credentials.extender_certificates(layout, self.site.scheduler_path, now=self.now())
        account = limits.preview(layout, self.limits) if self.limits is not None else None
        made = PlanCredentials(
            kubeconfig=credentials.kept_kubeconfig(layout), certificates=certificates, limits=account
        )
        return InstallReport(
            op=self._op(),
            outcome=None,
            role=role,
            version=self.release.version,
            plan=self._plan(None if self.options.agent_only else made),
            cluster_changes=self._cluster_changes(role),
        )

    def _cluster_changes(self, role: MachineRole) -> DryRun:
        if not self.site.kind.is_server or self.options.agent_only:
            return DryRun()  # the installer on an agent node has no rights on nodes and accounts
        return of_install(
            lambda: ClusterClient.from_kubeconfig(self.machine.layout.at(self.site.admin_kubeconfig)),
            self.release.rights,
            gpu=self.options.nodes or self._here(),
            extender="" if role is MachineRole.AGENT else self.site.node_name,
            by=self.release.version,
            limits=self.limits,
            model=configured_model(self.machine.layout),
        )

    def _here(self) -> tuple[str, ...]:
        return (self.site.node_name,) if self.site.has_cards else ()

    def run(self) -> InstallReport:
        """Install, change or upgrade edgegpu; a machine that is already as wanted is not changed.

        Raises:
            InstallError: the installation was refused before anything was changed.
        """
        role = role_of(self.site, self.options)
        if self.options.agent_only:
            if self.machine.layout.has_sharing:
                raise InstallError(
                    "cannot install the agent alone: GPU sharing is installed on this machine",
                    "leave --agent-only out, or take sharing off first: edgegpu uninstall --keep-agent",
                )
            return self._change(role, None)
        if not self.site.kind.is_server:
            self._check_unit(self.site.kubelet_kubeconfig)
            made = credentials.agent_kubeconfig(self.machine.layout, self.site.kubelet_kubeconfig, self.options.join)
            return self._change(role, PlanCredentials(kubeconfig=made))
        layout = self.machine.layout
        self._check_unit(self.site.admin_kubeconfig)
        with ClusterClient.from_kubeconfig(layout.at(self.site.admin_kubeconfig)) as cluster:
            marked = self._nodes(cluster)
            self.machine.say("taking the cluster's install lease")
            holder = lease.this_process(self.site.node_name, layout.root)
            environment = lease.lease_environment(layout.root)
            with (
                lease.acquire(cluster, holder, environment=environment, say=self.machine.say) as held,
                self._accounts(cluster) as undone,
            ):
                self.machine.say("making accounts and certificates")
                minted = self._material(cluster, role)
                held.check()
                report = self._change(role, minted)
                if not report.succeeded:
                    undone()
                    return report
                return self._mark(cluster, report, marked)

    def _check_unit(self, kubeconfig: str) -> None:
        """Refuse a new size of the unit while pods hold shares. Raises InstallError."""
        layout, wanted = self.machine.layout, self.options.unit_mib
        if unit_size.changes(layout, wanted):
            with ClusterClient.from_kubeconfig(layout.at(kubeconfig)) as cluster:
                unit_size.refuse_while_held(cluster, layout, wanted, node=self.site.node_name)

    def _material(self, cluster: ClusterClient, role: MachineRole) -> PlanCredentials:
        layout, rights = self.machine.layout, self.release.rights
        kubeconfig = credentials.server_kubeconfig(cluster, rights, layout)
        account = None
        if self.limits is not None:
            model, say = configured_model(layout), self.machine.say
            account = limits.grant(cluster, rights, self.limits, model=model, layout=layout, say=say)
        certificates = None
        if role is not MachineRole.AGENT:
            certificates = credentials.extender_certificates(layout, self.site.scheduler_path, now=self.now())
        credentials.settle_datastore(self.site, layout)  # before files that name these accounts are written
        return PlanCredentials(kubeconfig=kubeconfig, certificates=certificates, limits=account)

    def _op(self) -> TransactionKind:
        link = self._link()
        if not link:
            return TransactionKind.INSTALL
        if link != self.release.version:
            return TransactionKind.UPGRADE
        return (
            TransactionKind.CHANGE
            if self.machine.layout.has_sharing or self.options.agent_only
            else TransactionKind.INSTALL
        )

    def _plan(self, made: PlanCredentials | None) -> Plan:
        layout, read_file = self.machine.layout, self.machine.layout.read
        if made is None:
            plan = plan_agent(self.site, self.options, release=self.release, read_file=read_file, op=self._op())
        else:
            plan = plan_install(
                self.site, self.options, release=self.release, material=made, read_file=read_file, op=self._op()
            )
        changed = [c for c in plan.files if read_entry(layout.at(c.path)) != wanted(c)]
        waits = self.machine.system.unit(farewell.UNIT).is_there  # an uninstall is not finished yet
        return replace(
            plan,
            stop=(farewell.UNIT,) if waits and changed else (),
            start=self._to_start(plan, changed),
            reload=any(c.path.startswith(UNITS) for c in changed),
        )

    def _to_start(self, plan: Plan, changed: list[FileChange]) -> tuple[str, ...]:
        """Return the services to start, and those to restart because a file that they read changes."""
        reads = {PLUGIN_UNIT: _PLUGIN_READS, AGENT_UNIT: _AGENT_READS}
        return tuple(
            unit
            for unit in plan.start
            if any(change.path.startswith(reads[unit]) for change in changed)
            or not self.machine.system.unit(unit).is_active
        )

    def _change(self, role: MachineRole, made: PlanCredentials | None) -> InstallReport:
        """Carry the plan out; when `made` is None, the plan is for the agent alone."""
        plan, previous = self._plan(made), self._link()
        had_sharing = self.machine.layout.has_sharing
        before = self.machine.system.unit(self.site.unit).invocation
        offers = role is not MachineRole.EXTENDER_ONLY and self.site.has_cards
        verify = self._see_agent if made is None else self.verifier(offers)
        outcome = transaction.run(plan, self.machine, verify=verify, deadline_s=self.deadline_s)
        outcome = look_again(outcome, self.site, self.machine.layout)
        if farewell.UNIT in plan.stop:  # it goes on after a rollback, else it removes itself
            self.machine.system.restart_no_block(farewell.UNIT)
        elif not had_sharing and outcome.state is TransactionState.ROLLED_BACK:
            rollback_cleanup.clean_up(self.site, self.release, self.machine)
        if outcome.state is TransactionState.COMMITTED and plan.op is TransactionKind.UPGRADE:
            self._remove_old_versions(previous)
        restarted = self.machine.system.unit(self.site.unit).invocation != before
        return InstallReport(
            op=plan.op, outcome=outcome, role=role, version=self.release.version, plan=plan, restarted=restarted
        )

    def _see_agent(self, _deadline: Deadline) -> None:
        if not self.machine.system.unit(AGENT_UNIT).is_active:
            raise InstallError(f"cannot verify the change: {AGENT_UNIT} does not run", f"journalctl -e -u {AGENT_UNIT}")

    def _nodes(self, cluster: ClusterClient) -> tuple[str, ...]:
        """Return the nodes to label: those of the options or of the terminal, else this one when it has cards."""
        known = nodes.all_facts(cluster, configured_model(self.machine.layout))
        if self.options.nodes:
            if unknown := set(self.options.nodes) - {node.name for node in known}:
                names = ", ".join(node.name for node in known)
                raise InstallError(
                    f"cannot label {', '.join(sorted(unknown))}: there is no such node", f"this cluster has {names}"
                )
            return self.options.nodes
        if self.terminal is None or self._op() is not TransactionKind.INSTALL:
            return self._here()
        return prompts.choose_nodes(self.terminal, known, here=self.site.node_name, cards_here=self.site.cards)

    @contextmanager
    def _accounts(self, cluster: ClusterClient) -> Iterator[Callable[[], None]]:
        """Remove the accounts again when a first installation fails."""
        there = bool(accounts.present(cluster, self.release.rights))

        def undo() -> None:
            if not there:
                try:
                    accounts.remove(cluster, limits.there(cluster, self.release.rights, self.limits))
                except ClusterError as error:
                    self.machine.say(f"cannot remove edgegpu's accounts from the cluster: {error}")

        try:
            yield undo
        except BaseException:
            undo()
            raise

    def _mark(self, cluster: ClusterClient, report: InstallReport, marked: tuple[str, ...]) -> InstallReport:
        """Label the nodes and report what the cluster still lacks; a failure here does not fail the installation."""
        try:
            for name in marked:
                nodes.mark_gpu(cluster, name)
            if report.role is not MachineRole.AGENT:
                nodes.mark_server(cluster, self.site.node_name, self.release.version, say=self.machine.say)
            credentials.settle_datastore(self.site, self.machine.layout)
            lacking = completeness(
                cluster.items(NODE),
                version=self.release.version,
                model=configured_model(self.machine.layout),
                servers_at=other_servers(cluster),
            )
            return replace(report, lacking=tuple(lacking), join=self._join(cluster))
        except InstallError as error:
            return replace(report, lacking=(f"the nodes of the cluster could not be marked: {error}",))

    def _join(self, cluster: ClusterClient) -> str:
        made = accounts.join(cluster, self.release.rights, Account.AGENT)
        return node_identity.pack(server=made.server, ca_pem=made.ca_pem, token=made.token)

    def _link(self) -> str:
        return current.readlink().name if (current := self.machine.layout.current).is_symlink() else ""

    def _remove_old_versions(self, previous: str) -> None:
        """Remove all versions but this and the previous one, to which a person can go back on a box without network."""
        for folder in self.machine.layout.opt.iterdir():
            if not folder.is_symlink() and folder.name not in {self.release.version, previous}:
                shutil.rmtree(folder, ignore_errors=True)
