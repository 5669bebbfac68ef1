"""The installer for the commands install, uninstall and transaction: its checks, and the output of a plan."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import typer

from edgegpu_agent.cli.common import CliError, sayer
from edgegpu_agent.cli.setup.enrol_options import app_limits, is_spent
from edgegpu_base.process.user import invoking_user
from edgegpu_installer.changes import LEAVING, Deadline, Plan
from edgegpu_installer.cluster.app_limits_account import AppLimitsAccount
from edgegpu_installer.errors import InstallError
from edgegpu_installer.install import Installation, InstallReport
from edgegpu_installer.layout import AGENT_UNIT, PLUGIN_UNIT, Layout
from edgegpu_installer.machine.atomic import PathEntry, read_entry, wanted
from edgegpu_installer.machine.facts import MachineFacts, read_facts
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan import agent_config
from edgegpu_installer.plan.dry_run import DryRun
from edgegpu_installer.plan.plugin_config import resource_model
from edgegpu_installer.plan.precheck import STEADY_S, FindingLevel, precheck, refused
from edgegpu_installer.plan.release import Release, read_release
from edgegpu_installer.plan.site import InstallOptions, MachineRole, Site, leaving_site_of, site_of
from edgegpu_installer.prompts import Terminal
from edgegpu_installer.transaction import transaction
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.prepare import TransactionMachine, prepare
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome, Verify
from edgegpu_installer.uninstall import Uninstallation, UninstallResult
from edgegpu_installer.verify.conditions import verifier

PAUSE, TRACE = "EDGEGPU_INSTALLER_PAUSE", "EDGEGPU_INSTALLER_TRACE"
"""Variables for tests of faults: the step at which the installer waits; a file for the names of all steps."""


_ID = re.compile(r"[a-z0-9][a-z0-9-]{7,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallerConsole:
    """The installer on this machine, with output for people."""

    say: Callable[[str], None]
    deadline_s: float = 600.0
    transaction_id: str = ""
    layout: Layout = field(default_factory=Layout)
    system: Systemd = field(default_factory=Systemd)

    def checked(self) -> Self:
        """Return this installer, if its program lies in an unpacked version. Raises InstallError."""
        self._release()
        return self

    def install(self, options: InstallOptions, *, ask: bool, dry_run: bool) -> InstallReport:
        """Check the machine, refuse what would not work, and install. Raises InstallError."""
        release = self._release()
        if is_spent(self.layout, options.token):
            options = replace(options, token="")
        agent_config.refuse_homeless(options, belongs=self.layout.agent_yaml.exists())
        self.say("looking at this machine")
        facts = self._checked(options, release)
        site = site_of(facts)
        with _terminal(wanted=ask and not dry_run) as terminal:
            installation = Installation(
                site=site,
                options=options,
                release=release,
                machine=self._machine(release),
                verifier=self._verifier(facts, site),
                terminal=terminal,
                limits=self._limits(options, site),
                deadline_s=self.deadline_s,
            )
            return installation.preview() if dry_run else installation.run()

    def uninstall(
        self, *, ask: bool, agreed: bool, force: bool, dry_run: bool, keep_agent: bool = False
    ) -> UninstallResult:
        """Check the machine, ask, and uninstall everything, or only sharing. Raises InstallError."""
        if not self.layout.baseline.exists() and not self.layout.current.is_symlink():
            raise InstallError("cannot uninstall: edgegpu is not installed on this machine")
        release = self._release()
        facts = read_facts(self.layout)
        site = leaving_site_of(facts)
        with _terminal(wanted=ask and not dry_run) as terminal:
            uninstallation = Uninstallation(
                site=site,
                release=release,
                machine=self._machine(release),
                verifier=self._verifier(facts, site),
                terminal=terminal,
                agreed=agreed,
                force=force,
                keep_agent=keep_agent,
                limits=app_limits(()),
                deadline_s=self.deadline_s,
            )
            return uninstallation.preview() if dry_run else uninstallation.run()

    def resume(self) -> TransactionOutcome | None:
        """Finish a transaction whose author died; None where there is none. Raises InstallError."""

        def verify(deadline: Deadline) -> None:
            """Read the machine only here: where nothing is to be verified it need not have k3s."""
            record = TransactionJournal(self.layout.tx).read()
            facts = read_facts(self.layout)
            site = leaving_site_of(facts)
            offers = record is not None and record.op not in LEAVING and site.has_cards
            self._verifier(facts, site)(offers)(deadline)

        return transaction.resume(self._machine(self._release()), verify=verify)

    def changes(self, plan: Plan) -> list[dict[str, str]]:
        """Return what a plan does to each file, as JSON."""
        files = self._release().recovery.into(plan).files
        return [_change(read_entry(self.layout.at(one.path)), wanted(one), one.path) for one in files]

    def say_plan(self, plan: Plan, cluster_changes: DryRun) -> None:
        """Print what a plan would change on the machine and in the cluster."""
        restarts = prepare(plan, self._machine(self._release())).restarts
        for row in self.changes(plan):
            typer.echo(f"{row['change']:<9} {row['mode']:>4} {row['path']}")
        for unit in plan.stop:
            typer.echo(f"stop      {unit}")
        for unit in plan.start:
            typer.echo(f"start     {unit}")
        typer.echo(f"restart   {plan.restart}" if restarts else "no restart of k3s")
        for mark in cluster_changes.marks:
            typer.echo(f"{mark.change:<9} {mark.kind} {mark.name}={mark.value} of node {mark.node}")
        for one in cluster_changes.objects:
            typer.echo(f"{one.change:<9} {one.name}")
        if cluster_changes.unseen:
            typer.echo(f"how the cluster is now could not be seen: {cluster_changes.unseen}")
        typer.echo("nothing was changed: this was a dry run")

    def say_failure(self, what: str, outcome: TransactionOutcome) -> None:
        """Print on stderr how a failed transaction ended, and in which state the machine is."""
        end = {
            TransactionState.ROLLED_BACK: "it was rolled back: the machine is as it was",
            TransactionState.INCONSISTENT: (
                "it could not be undone whole: edgegpu-recover tries again; see edgegpu-recover show"
            ),
        }.get(outcome.state, outcome.state.value)
        typer.echo(f"edgegpu: cannot {what}: {outcome.why}\n  {end}", err=True)

    def standing(self, role: MachineRole) -> list[str]:
        """Return lines about the running services, and about the resources that the node offers."""
        units = [AGENT_UNIT, PLUGIN_UNIT]
        lines = [f"{unit.removesuffix('.service')}: {self.system.unit(unit).active}" for unit in units]
        node = read_facts(self.layout).node
        if role is not MachineRole.EXTENDER_ONLY and node is not None:
            offered = [f"{n} {name}" for name, n in sorted(node.allocatable.items()) if "vcuda" in name]
            lines += [f"this node offers {', '.join(offered)}"] if offered or not node.why else []
        return lines

    def _release(self) -> Release:
        """Return the release of this program, from the folder of its environment."""
        return read_release(Path(os.environ.get("EDGEGPU_RELEASE") or _own_folder()))

    def _checked(self, options: InstallOptions, release: Release) -> MachineFacts:
        facts = read_facts(self.layout, driver_root=options.driver_root)
        starting = facts.k3s is not None and facts.k3s.health.active and facts.k3s.health.up_s < STEADY_S
        if facts.k3s is not None and starting and not options.agent_only:
            self.say(f"waiting until {facts.k3s.unit.name} has been up for {STEADY_S:g} s")
            time.sleep(STEADY_S - facts.k3s.health.up_s)
            facts = read_facts(self.layout, driver_root=options.driver_root)
        there = facts.installed.plugin_yaml if facts.installed else None
        findings = precheck(
            facts,
            options,
            model=resource_model(there),
            unpacked=release.folder.resolve() == self.layout.version(release.version).resolve(),
        )
        for finding in findings:
            if finding.level is FindingLevel.WARN:
                self.say(f"note: {finding.what}: {finding.why}; {finding.remedy}")
        if wrong := refused(findings):
            first, *more = (f"{one.what}: {one.why}" for one in wrong)
            raise InstallError(
                f"cannot install here: {'; '.join([first, *more])}", remedy="\n  ".join(one.remedy for one in wrong)
            )
        return facts

    def _limits(self, options: InstallOptions, site: Site) -> AppLimitsAccount | None:
        """Return the account for app limits, on a server that belongs to a cloud; else None."""
        there = self.layout.agent_yaml
        chosen = agent_config.limits_namespaces(there.read_text(errors="replace") if there.exists() else None, options)
        return app_limits(chosen) if chosen is not None and site.kind.is_server else None

    def _machine(self, release: Release) -> TransactionMachine:
        return TransactionMachine(
            layout=self.layout,
            system=self.system,
            recovery=release.recovery,
            say=self.say,
            at_step=_at_step,
            version=release.version,
            transaction_id=self.transaction_id,
            user="" if self.transaction_id else invoking_user(),  # a program that gives an id says no user
        )

    def _verifier(self, facts: MachineFacts, site: Site) -> Callable[[bool], Verify]:
        return lambda offers: verifier(facts, site, layout=self.layout, system=self.system, offers=offers, say=self.say)


def this_machine(*, as_json: bool, deadline_s: float = 600.0, transaction_id: str = "") -> InstallerConsole:
    """Return the installer for one command; an empty `transaction_id` gets a random one.

    Raises:
        CliError: the id is invalid.
    """
    if transaction_id and _ID.fullmatch(transaction_id) is None:
        raise CliError(f"cannot call a change {transaction_id[:64]!r}", remedy="give 8 to 40 of a-z, 0-9 and -")
    say = sayer(as_json=as_json, indent="  ")
    return InstallerConsole(say=say, deadline_s=deadline_s, transaction_id=transaction_id)


def _change(now: PathEntry, then: PathEntry, path: str) -> dict[str, str]:
    if now == then:
        what = "as it is"
    elif now == PathEntry():
        what = "new"
    else:
        what = "removed" if then == PathEntry() else "changed"
    mode = "link" if then.link_to is not None else f"{then.mode:o}"
    return {"path": path, "change": what, "mode": mode if then != PathEntry() else ""}


@contextmanager
def _terminal(*, wanted: bool) -> Iterator[Terminal | None]:
    found = Terminal.find() if wanted else None
    if found is None:
        yield None
        return
    with found:
        yield found


def _own_folder() -> Path:
    """Return the folder of this module's environment, the one with lib/ in it."""
    return Path(__file__).resolve().parents[4]


def _at_step(name: str) -> None:
    """Record a step, and wait at it, as the variables of fault tests demand; without them do nothing."""
    if trace := os.environ.get(TRACE):
        with Path(trace).open("a", encoding="ascii") as file:
            file.write(f"{name}\n")
    if os.environ.get(PAUSE) == name:
        typer.echo(f"waiting at {name}, process {os.getpid()}", err=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        # Wait until a kill or SIGUSR1. In short waits, since an endless one would keep SIGINT from us.
        while signal.sigtimedwait({signal.SIGUSR1}, 0.2) is None:
            pass
