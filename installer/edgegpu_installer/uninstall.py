"""Removal of edgegpu, or of sharing alone, from this machine: pods, files, edgegpu-farewell, the cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from edgegpu_core.nodereport import REPORT_ANNOTATION
from edgegpu_core.podview import PodView
from edgegpu_installer.changes import Deadline, FileChange, Plan, TransactionKind
from edgegpu_installer.cluster import accounts, lease, nodes, shares
from edgegpu_installer.cluster import app_limits_account as limits
from edgegpu_installer.cluster.app_limits_account import AppLimitsAccount
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import (
    AGENT_UNIT,
    AGENT_YAML,
    CLOUD_TOKEN,
    COMMAND,
    CURRENT,
    MPS_UNIT,
    PLUGIN_UNIT,
    PLUGIN_YAML,
    RUN,
    UNITS,
    WANTS,
)
from edgegpu_installer.plan import credentials, shared_config, start_wait
from edgegpu_installer.plan.dry_run import DryRun, of_uninstall, used_by_others
from edgegpu_installer.plan.plugin_config import configured_model, places
from edgegpu_installer.plan.release import Release
from edgegpu_installer.plan.site import Site, SiteKind
from edgegpu_installer.prompts import Terminal
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.transaction import baseline, farewell, share_drain, transaction
from edgegpu_installer.transaction.farewell import Farewell
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome, Verify
from edgegpu_installer.verify import kubeadm_probe as kubeadm_look
from edgegpu_installer.verify.conditions import look_again

_STAYS = frozenset(
    {CURRENT, COMMAND, f"{UNITS}/{AGENT_UNIT}", f"{WANTS}/{AGENT_UNIT}", AGENT_YAML, CLOUD_TOKEN, PLUGIN_YAML}
)
"""The files that the agent needs, and the settings that a later installation of sharing uses again."""


_REMOVED = "k3s is not on this machine any more, and nobody could be asked"
_MARKS_LEFT = (
    "what the cluster has of this node, if it lives on (on a server: "
    f"k3s kubectl label node {{node}} {nodes.GPU_LABEL}-; "
    f"k3s kubectl annotate node {{node}} {REPORT_ANNOTATION}- {nodes.EXTENDER_ANNOTATION}-)"
)


class InUseError(InstallError):
    """Pods still use shares; `pods` has a line for each."""

    code = "IN_USE"

    def __init__(self, pods: tuple[str, ...]) -> None:
        self.pods = pods
        many = f"{len(pods)} pods of this node still use" if len(pods) > 1 else "a pod of this node still uses"
        super().__init__(
            f"cannot uninstall: {many} shares:\n  " + "\n  ".join(pods),
            "stop them, or add --force: running containers go on, but cannot be started again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallResult:
    """What an uninstall did; `still`: pods that keep running with their shares; `kept`: what stays, and why."""

    outcome: TransactionOutcome | None
    plan: Plan
    still: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    cluster_changes: DryRun = field(default_factory=DryRun)
    """Of a dry run: what would be done to the cluster."""
    has_node: bool = True
    """Whether this machine was still a node of a cluster, which could be asked."""

    @property
    def succeeded(self) -> bool:
        """Whether edgegpu was uninstalled; True after a dry run."""
        return self.outcome is None or self.outcome.state is TransactionState.COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninstallation:
    """One uninstall on one machine. `verifier`: as for an installation. `keep_agent`: only sharing is removed."""

    site: Site
    release: Release
    machine: TransactionMachine
    verifier: Callable[[bool], Verify]
    terminal: Terminal | None = None
    agreed: bool = False
    """Whether the user gave `--yes`."""
    force: bool = False
    keep_agent: bool = False
    limits: AppLimitsAccount | None = None
    """The account for app limits, whose objects may be in the cluster."""
    deadline_s: float = 600.0

    def preview(self) -> UninstallResult:
        """Return what an uninstall would change."""
        site = self.site
        if site.is_removed:
            return UninstallResult(outcome=None, plan=self._plan(), cluster_changes=DryRun(unseen=_REMOVED))
        path = site.admin_kubeconfig if site.kind.is_server else site.kubelet_kubeconfig
        cluster_changes = of_uninstall(
            lambda: self._cluster(path),
            self.release.rights,
            node=site.node_name,
            is_server=site.kind.is_server,
            limits=self.limits,
        )
        return UninstallResult(outcome=None, plan=self._plan(), cluster_changes=cluster_changes)

    def run(self) -> UninstallResult:
        """Uninstall edgegpu.

        Raises:
            InUseError: pods use shares, `force` is not set, and there is no terminal to ask.
            InstallError: the uninstall was refused before anything was changed.
        """
        if self.site.is_removed:
            return self._run_alone()
        if not self.site.kind.is_server:
            with self._cluster(self.site.kubelet_kubeconfig) as cluster:
                return self._run(cluster)
        with self._cluster(self.site.admin_kubeconfig) as cluster:
            holder = lease.this_process(self.site.node_name, self.machine.layout.root)
            environment = lease.lease_environment(self.machine.layout.root)
            with lease.acquire(cluster, holder, environment=environment, say=self.machine.say):
                return self._run(cluster)

    def _cluster(self, path: str) -> ClusterClient:
        return ClusterClient.from_kubeconfig(self.machine.layout.at(path))

    def _run_alone(self) -> UninstallResult:
        """Uninstall edgegpu where no cluster can be asked: k3s was removed, and its pods with it."""
        self._agree(())
        removal = self._change(lambda _deadline: None, ())
        if not removal.succeeded:
            return removal
        return replace(removal, kept=(f"{_MARKS_LEFT.format(node=self.site.node_name)}: {_REMOVED}",), has_node=False)

    def _run(self, cluster: ClusterClient) -> UninstallResult:
        still = tuple(shares.said(pod) for pod in self._in_use(cluster))
        if self._plan().files:  # else sharing is gone already, and only leftovers in the cluster are removed
            self._agree(still)
        model = configured_model(self.machine.layout)

        def drain(deadline: Deadline) -> None:
            share_drain.drain(cluster, model, node=self.site.node_name, deadline=deadline, say=self.machine.say)

        removal = self._change(drain, still)
        if not removal.succeeded:
            return removal
        removal = self._clear(cluster, removal)
        return replace(removal, kept=(*removal.kept, *self._mps()))

    def _mps(self) -> tuple[str, ...]:
        """Return what is said of the daemon of MPS that runs on: its end would end its clients' CUDA programs."""
        if not self.machine.system.unit(MPS_UNIT).is_active:
            return ()
        return (f"{MPS_UNIT}: containers may compute by it; it is stopped once the last pod with shares is gone",)

    def _in_use(self, cluster: ClusterClient) -> tuple[PodView, ...]:
        return shares.in_use(cluster, configured_model(self.machine.layout), node=self.site.node_name)

    def _agree(self, still: tuple[str, ...]) -> None:
        if still and not self.force:
            if self.terminal is None:
                raise InUseError(still)
            self.terminal.say("These pods use shares; they go on, but cannot be started again:")
            for line in still:
                self.terminal.say(f"  {line}")
        if self.terminal is not None and not self.agreed and not self.terminal.confirm("Uninstall edgegpu here?"):
            raise InstallError("nothing was changed: you said no")

    def _plan(self) -> Plan:
        layout = self.machine.layout
        if self.keep_agent and not layout.has_sharing:
            return Plan(op=TransactionKind.WITHDRAW, files=())
        there = layout.plugin_yaml
        used = places(there.read_text() if there.exists() else None)
        wait = Farewell(
            node=self.site.node_name,
            kubeconfig=self.site.kubelet_kubeconfig,
            model=configured_model(layout),
            cdi_spec=f"{used.cdi_folder}/{farewell.CDI_FILE}",
            run=used.run if "edgegpu" in PurePosixPath(used.run).name else RUN,  # it is removed whole: never /run
            folders=() if self.keep_agent else baseline.folders(layout)[::-1],
        )
        left = farewell.files(wait, program=self.release.farewell, unit=self.release.farewell_unit)
        return Plan(
            op=TransactionKind.WITHDRAW if self.keep_agent else TransactionKind.UNINSTALL,
            files=(*left, *self._restored()),
            reload=True,
            stop=(PLUGIN_UNIT,) if self.keep_agent else (PLUGIN_UNIT, AGENT_UNIT),
            start=(farewell.UNIT,),
            restart=self.site.unit if self.site.kind.is_k3s and self.site.unit else None,
        )

    def _restored(self) -> tuple[FileChange, ...]:
        """Return the changes that restore every path; in files that are not ours, later changes by others are kept.

        When the agent stays, recovery stays too: the files that are `early` in a plan.
        """
        changes = start_wait.restored(baseline.restore_plan(self.machine.layout))
        if self.keep_agent:
            changes = tuple(change for change in changes if not change.early and change.path not in _STAYS)
        if self.site.is_removed:
            changes = tuple(one for one in changes if one.absent or self._has_folder(one))
        if self.site.kind is not SiteKind.KUBEADM_SERVER:
            return shared_config.restore(changes, self.machine.layout)
        text = kubeadm_look.manifest_text(self.machine.layout)
        return kubeadm.restore_files(changes, text, mode=self.site.manifest_mode)

    def _has_folder(self, change: FileChange) -> bool:
        """Return whether the folder of a path is there: k3s's own uninstall has removed those of its configuration."""
        return self.machine.layout.at(change.path).parent.is_dir()

    def _change(self, drain: Callable[[Deadline], None], still: tuple[str, ...]) -> UninstallResult:
        plan = self._plan()
        outcome = transaction.run(
            plan,
            self.machine,
            verify=self.verifier(False),  # noqa: FBT003  (as an installation calls it)
            drain=drain,
            deadline_s=self.deadline_s,
        )
        outcome = look_again(outcome, self.site, self.machine.layout)
        return UninstallResult(outcome=outcome, plan=plan, still=still)

    def _clear(self, cluster: ClusterClient, removal: UninstallResult) -> UninstallResult:
        """Remove our marks from the node, and the accounts when no other machine has edgegpu."""
        kept: list[str] = []
        try:
            nodes.clear(cluster, self.site.node_name)
            if not self.site.kind.is_server:
                return removal
            if others := used_by_others(cluster, self.site.node_name):
                kept.append(f"the accounts in the cluster: {', '.join(others)} use them")
            else:
                left = accounts.remove(cluster, limits.there(cluster, self.release.rights, self.limits)).left
                kept += [f"{what}: it is still being deleted" for what in left]
            credentials.settle_datastore(self.site, self.machine.layout)
        except ClusterError as error:
            kept.append(f"marks and accounts in the cluster: {error}")
        return replace(removal, kept=tuple(kept))
