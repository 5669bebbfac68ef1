"""Where edgegpu is installed, and what a user asked for: what a plan is made from, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgegpu_installer.changes import FileChange
from edgegpu_installer.machine.place import Place
from edgegpu_installer.plan.certificates import Certificates


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
    config: Place = field(default_factory=Place)
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
class Material:
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
