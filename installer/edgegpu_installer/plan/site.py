"""Where edgegpu is installed, and what a user asked for: what a plan is made from, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine.atomic import FileLocation
from edgegpu_installer.machine.facts import MachineFacts, NodeKind
from edgegpu_installer.plan.certificates import Certificates
from edgegpu_installer.scheduler.kubeadm import ADMIN_KUBECONFIG
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE

_K3S_FLAGS = {"profiling": "false"}
"""What k3s itself gives its scheduler, as far as a file silences it (its pkg/daemons/control/server.go)."""


class SiteKind(StrEnum):
    """What runs the cluster on this machine."""

    K3S_SERVER = "k3s-server"
    K3S_AGENT = "k3s-agent"
    KUBEADM_SERVER = "kubeadm-server"
    KUBEADM_NODE = "kubeadm-node"

    @property
    def is_server(self) -> bool:
        """Whether a scheduler runs here."""
        return self in {SiteKind.K3S_SERVER, SiteKind.KUBEADM_SERVER}

    @property
    def is_k3s(self) -> bool:
        """Whether it is k3s."""
        return self in {SiteKind.K3S_SERVER, SiteKind.K3S_AGENT}


class MachineRole(StrEnum):
    """What of edgegpu runs on this machine, as the plugin's configuration has it."""

    SERVER = "server"
    AGENT = "agent"
    EXTENDER_ONLY = "extender-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """This machine, as far as a plan depends on it.

    `unit`: of k3s or kubelet, without `.service`. `scheduler_path`: where our scheduler's configuration lies,
    `drop_in`: what names it to k3s, by `drop_in_text`; `config`: the file that k3s reads first, which does so where it
    is no use (`takes_drop_in`). `scheduler_kubeconfig`: the scheduler's own. `scheduler_file`:
    the configuration that it has without us, empty where it has none. `scheduler_flags`: what k3s starts it with.
    `manifest`: the static pod of kubeadm's scheduler, of that mode.
    """

    kind: SiteKind
    unit: str
    node_name: str
    kubelet_folder: str
    kubelet_kubeconfig: str
    admin_kubeconfig: str = ""
    scheduler_path: str = ""
    drop_in: str = ""
    drop_in_text: str = ""
    config: FileLocation = field(default_factory=FileLocation)
    takes_drop_in: bool = True
    scheduler_kubeconfig: str = ""
    scheduler_file: str = ""
    scheduler_flags: Mapping[str, str] = field(default_factory=dict)
    manifest: str = ""
    manifest_mode: int = 0o600
    has_cards: bool
    cards: int = 0
    """How many there are on this machine."""
    minor: int | None = None
    """Of the Kubernetes version, by which the scheduler's file is written; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """What the user asked for; None or empty: as it is, or the default."""

    role: MachineRole | None = None
    policy: str | None = None
    exclude: tuple[str, ...] | None = None
    unit_mib: int | None = None
    reserve_mib: int | None = None
    driver_root: str | None = None
    nodes: tuple[str, ...] = ()
    """Nodes of the cluster to label as having GPUs."""
    isolation: str = "none"
    token: str = field(default="", repr=False)
    cloud: str = ""
    """The address of the cloud that the token is for, without a slash at its end."""
    ca_sha256: str = ""
    """Of the cloud's own CA: 64 hexadecimal digits."""
    proxy: str | None = field(default=None, repr=False)
    """By which the agent reaches HTTPS; empty: none. It may hold a password."""
    join: str = field(default="", repr=False)
    limits_namespaces: tuple[str, ...] | None = None
    """Where the cloud may change apps' limits; `*` everywhere but in kube-system, empty nowhere."""
    agent_only: bool = False
    """The agent and what it stands on, and no sharing: a machine that has none keeps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCredentials:
    """What is minted for this machine: the kubeconfig's file or link; without certificates it gets no extender."""

    kubeconfig: FileChange = field(repr=False)
    certificates: Certificates | None = None
    limits: FileChange | None = field(default=None, repr=False)
    """The kubeconfig for app limits, absent where there is no account; None: this machine has none to do with."""


def role_of(site: Site, options: InstallOptions) -> MachineRole:
    """Return what runs here: what was asked for, else what fits the machine."""
    if options.role is not None:
        return options.role
    if not site.kind.is_server:
        return MachineRole.AGENT
    return MachineRole.SERVER if site.has_cards else MachineRole.EXTENDER_ONLY


def site_of(facts: MachineFacts) -> Site:
    """Return the site that a machine is.

    Raises:
        InstallError: no cluster that edgegpu knows runs here.
    """
    k3s = facts.k3s
    if k3s is not None:
        foreign = k3s.foreign_scheduler_files
        return Site(
            kind=SiteKind.K3S_SERVER if k3s.is_server else SiteKind.K3S_AGENT,
            unit=k3s.unit.name.removesuffix(".service"),
            node_name=facts.node_name,
            kubelet_folder=facts.kubelet_folder,
            kubelet_kubeconfig=f"{k3s.data}/agent/kubelet.kubeconfig",
            admin_kubeconfig=k3s.admin_kubeconfig if k3s.is_server else "",
            scheduler_path=k3s.scheduler_file,
            drop_in=k3s.drop_in,
            drop_in_text=k3s.drop_in_text,
            config=k3s.place,
            takes_drop_in=k3s.takes_drop_in,
            scheduler_kubeconfig=k3s.scheduler_kubeconfig,
            scheduler_file=foreign[-1].text if foreign else "",
            scheduler_flags=_K3S_FLAGS | k3s.scheduler_flags,
            has_cards=bool(facts.cards.cards) and k3s.has_kubelet,
            cards=len(facts.cards.cards) if k3s.has_kubelet else 0,
            minor=k3s.minor,
        )
    if facts.kind not in {NodeKind.KUBEADM_SERVER, NodeKind.KUBEADM_NODE}:
        raise InstallError(
            f"cannot install here: {facts.kind} runs on this machine",
            "edgegpu needs a k3s server or agent, or a node of kubeadm's: install one of them first",
        )
    server = facts.kind is NodeKind.KUBEADM_SERVER
    return Site(
        kind=SiteKind.KUBEADM_SERVER if server else SiteKind.KUBEADM_NODE,
        unit="kubelet",
        node_name=facts.node_name,
        kubelet_folder=facts.kubelet_folder,
        kubelet_kubeconfig="/etc/kubernetes/kubelet.conf",
        admin_kubeconfig=ADMIN_KUBECONFIG if server else "",
        scheduler_path=SCHEDULER_FILE,
        scheduler_kubeconfig="/etc/kubernetes/scheduler.conf",
        manifest=MANIFEST,
        manifest_mode=facts.manifest_mode,
        has_cards=bool(facts.cards.cards),
        cards=len(facts.cards.cards),
    )
