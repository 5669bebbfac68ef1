"""The values from which a plan is made: the machine, and what the user asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import K3S_DATA
from edgegpu_installer.machine.atomic import FileLocation
from edgegpu_installer.machine.facts import MachineFacts, NodeKind
from edgegpu_installer.plan.certificates import Certificates
from edgegpu_installer.scheduler.kubeadm import ADMIN_KUBECONFIG
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE

_K3S_FLAGS = {"profiling": "false"}
"""Flags that k3s itself gives its scheduler and that a file overrides (k3s: pkg/daemons/control/server.go)."""


class SiteKind(StrEnum):
    """The Kubernetes distribution on this machine, and the machine's part in it."""

    K3S_SERVER = "k3s-server"
    K3S_AGENT = "k3s-agent"
    KUBEADM_SERVER = "kubeadm-server"
    KUBEADM_NODE = "kubeadm-node"

    @property
    def is_server(self) -> bool:
        """Whether a scheduler runs on this machine."""
        return self in {SiteKind.K3S_SERVER, SiteKind.KUBEADM_SERVER}

    @property
    def is_k3s(self) -> bool:
        """Whether this machine runs k3s."""
        return self in {SiteKind.K3S_SERVER, SiteKind.K3S_AGENT}


class MachineRole(StrEnum):
    """The role of this machine, as in the plugin's configuration."""

    SERVER = "server"
    AGENT = "agent"
    EXTENDER_ONLY = "extender-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The facts of this machine on which a plan depends.

    `unit`: of k3s or kubelet, without `.service`. `scheduler_path`: the path of our scheduler configuration. `drop_in`:
    the file that names it to k3s, with `drop_in_text`. `config`: the file that k3s reads first; it has our lines when
    `takes_drop_in` is False. `scheduler_kubeconfig`: the scheduler's own. `scheduler_file`: the scheduler's
    configuration without edgegpu, empty when there is none. `scheduler_flags`: the flags that k3s starts it with.
    `manifest`: the path of the static pod of kubeadm's scheduler; `manifest_mode`: its mode.
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
    is_removed: bool = False
    """Whether the Kubernetes of this machine was removed after the installation; then `kind` says nothing."""
    has_cards: bool
    cards: int = 0
    """The number of cards on this machine."""
    pod_resolv_conf: str = ""
    """The resolv.conf that k3s chooses for pods; where none fits, that of before; empty where there was none."""
    containerd_config: str = ""
    """The path of containerd's configuration where the plugin would not find it by itself, else empty."""
    minor: int | None = None
    """The Kubernetes minor version, which decides the format of the scheduler's file; None when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """What the user asked for; None or empty keeps the present setting, or the default."""

    role: MachineRole | None = None
    policy: str | None = None
    exclude: tuple[str, ...] | None = None
    unit_mib: int | None = None
    reserve_mib: int | str | None = None
    """MiB of each card that are not offered; `auto`: what the driver keeps."""
    driver_root: str | None = None
    nodes: tuple[str, ...] = ()
    """Nodes of the cluster to label as having GPUs."""
    isolation: str | None = None
    """none, limiter or mps: what holds containers that come from then on to their shares."""
    wait_at_start: bool | None = None
    """Whether a starting kubelet of k3s waits for the devices at a resolv.conf of its own."""
    token: str = field(default="", repr=False)
    cloud: str = ""
    """The address of the cloud that the token is for, without a slash at its end."""
    ca_sha256: str = ""
    """The SHA-256 of the cloud's own CA: 64 hexadecimal digits."""
    proxy: str | None = field(default=None, repr=False)
    """The agent's proxy; empty for none. It may hold a password."""
    broker: str | None = None
    """Where the agent finds the broker first, HOST:PORT; empty: where the cloud says."""
    join: str = field(default="", repr=False)
    limits_namespaces: tuple[str, ...] | None = None
    """The namespaces in which the cloud may change app limits; `*` is all but kube-system, empty is none."""
    agent_only: bool = False
    """Whether to install the agent and what it needs, without sharing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCredentials:
    """The credentials of this machine: a kubeconfig, as a file or a link, and certificates when it has an extender."""

    kubeconfig: FileChange = field(repr=False)
    certificates: Certificates | None = None
    limits: FileChange | None = field(default=None, repr=False)
    """The kubeconfig for app limits, absent without an account; None when this machine does not change it."""


def role_of(site: Site, options: InstallOptions) -> MachineRole:
    """Return the role that the user asked for, else the one that fits the machine."""
    if options.role is not None:
        return options.role
    if not site.kind.is_server:
        return MachineRole.AGENT
    return MachineRole.SERVER if site.has_cards else MachineRole.EXTENDER_ONLY


def leaving_site_of(facts: MachineFacts) -> Site:
    """Return the site of a machine that edgegpu leaves.

    Its Kubernetes may have been removed before; perhaps one on which edgegpu does not run has come in its place.
    """
    if facts.kind not in {NodeKind.NONE, NodeKind.RKE2, NodeKind.MICROK8S, NodeKind.K0S}:
        return site_of(facts)
    return Site(
        kind=SiteKind.K3S_AGENT,
        is_removed=True,
        unit="",
        node_name=facts.node_name,
        kubelet_folder=facts.kubelet_folder,
        kubelet_kubeconfig=f"{K3S_DATA}/agent/kubelet.kubeconfig",
        has_cards=bool(facts.cards.cards),
        cards=len(facts.cards.cards),
    )


def site_of(facts: MachineFacts) -> Site:
    """Return the site of a machine's facts.

    Raises:
        InstallError: no Kubernetes that edgegpu supports runs here.
    """
    k3s = facts.k3s
    if k3s is not None:
        foreign = k3s.foreign_scheduler_files
        return Site(
            kind=SiteKind.K3S_SERVER if k3s.is_server else SiteKind.K3S_AGENT,
            unit=k3s.unit.name.removesuffix(".service"),
            node_name=facts.node_name,
            kubelet_folder=facts.kubelet_folder,
            containerd_config=_unusual_config(facts),
            kubelet_kubeconfig=k3s.kubelet_kubeconfig,
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
            pod_resolv_conf=k3s.resolv_conf.choice or k3s.resolv_conf.link_to,
        )
    return _kubeadm_site(facts)


def _unusual_config(facts: MachineFacts) -> str:
    return "" if facts.runtime.is_usual else facts.runtime.config


def _kubeadm_site(facts: MachineFacts) -> Site:
    if facts.kind not in {NodeKind.KUBEADM_SERVER, NodeKind.KUBEADM_NODE}:
        first = ": install one of them first" if facts.kind is NodeKind.NONE else ""
        raise InstallError(
            f"cannot install here: {facts.kind} runs on this machine",
            f"edgegpu needs a k3s server or agent, or a node of kubeadm's{first}",
        )
    server = facts.kind is NodeKind.KUBEADM_SERVER
    return Site(
        kind=SiteKind.KUBEADM_SERVER if server else SiteKind.KUBEADM_NODE,
        unit="kubelet",
        node_name=facts.node_name,
        kubelet_folder=facts.kubelet_folder,
        containerd_config=_unusual_config(facts),
        kubelet_kubeconfig=facts.kubelet.kubelet_kubeconfig,
        admin_kubeconfig=ADMIN_KUBECONFIG if server else "",
        scheduler_path=SCHEDULER_FILE,
        scheduler_kubeconfig="/etc/kubernetes/scheduler.conf",
        manifest=MANIFEST,
        manifest_mode=facts.manifest_mode,
        minor=facts.scheduler_minor,
        has_cards=bool(facts.cards.cards),
        cards=len(facts.cards.cards),
    )
