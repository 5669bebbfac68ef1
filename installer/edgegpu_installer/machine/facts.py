"""The facts of a box before any change, read once and quickly; reading changes nothing and does not fail."""

import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from edgegpu_core.injection import ContainerdSupport, NodeVersions, major_minor
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.cards import Cards, read_cards
from edgegpu_installer.machine.container_runtime import OwnContainerd, RuntimeFacts, read_runtime
from edgegpu_installer.machine.device_sockets import DeviceSocket, device_sockets, registered_devices
from edgegpu_installer.machine.k3s import K3s, kubectl_of, read_k3s
from edgegpu_installer.machine.kubelet import Kubelet, read_kubelet
from edgegpu_installer.machine.node import Kubectl, NodeSeen, read_node
from edgegpu_installer.machine.node_certificate import certified_name
from edgegpu_installer.machine.programs import SYSTEM_PATH
from edgegpu_installer.machine.unit_files import kube_units, other_distribution
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.kubeadm import ADMIN_KUBECONFIG
from edgegpu_installer.scheduler.manifest import MANIFEST, Manifest

_ROOMS = ("/", "/etc", "/var/lib", "/opt", "/usr/local")
_MIB = 1 << 20


class NodeKind(StrEnum):
    """What the machine is in its cluster."""

    K3S_SERVER = "k3s server"
    K3S_AGENT = "k3s agent"
    KUBEADM_SERVER = "kubeadm control plane"
    KUBEADM_NODE = "kubeadm node"
    RKE2 = "RKE2"
    MICROK8S = "microk8s"
    K0S = "k0s"
    NONE = "no Kubernetes"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free space of a folder's file system."""

    path: str
    free_mib: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class Installed:
    """An edgegpu that is already installed; `plugin_yaml` is the text of its configuration, None without a file."""

    version: str
    """The version to which `/opt/edgegpu/current` links; empty without that link."""
    plugin_yaml: str | None
    unit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The facts that the installer has read of a machine."""

    root: bool
    """Whether this process runs as root."""
    machine: str
    """The machine's architecture, such as `x86_64`."""
    rooms: tuple[DiskSpace, ...]
    kind: NodeKind
    manifest_mode: int
    """The mode of kubeadm's manifest of the scheduler; the mode that kubeadm uses when there is none."""
    k3s: K3s | None
    node_name: str
    certified_name: str
    """The node's name in kubelet's certificate; empty when it cannot be read."""
    kubelet: Kubelet
    """The flags and settings of a kubelet of its own; empty on a machine with k3s."""
    scheduler: Manifest | None
    """The manifest of kubeadm's scheduler; None without one that can be read."""
    node: NodeSeen | None
    """The node in the cluster; None on a machine without Kubernetes."""
    kubelet_folder: str
    """Kubelet's `--root-dir`."""
    sockets: tuple[DeviceSocket, ...]
    """The sockets of other device plugins, served or left behind."""
    registered: Mapping[str, tuple[str, ...]]
    """The ids of each resource's devices, by kubelet's checkpoint."""
    runtime: RuntimeFacts
    is_wsl: bool
    """Whether this machine is Windows' subsystem, which shows cards as /dev/dxg."""
    cards: Cards
    driver_root: str
    installed: Installed | None

    @property
    def containerd(self) -> ContainerdSupport | None:
        """What containerd's configuration says; None without one that can be read, or with another runtime."""
        return self.runtime.containerd

    @property
    def scheduler_minor(self) -> int | None:
        """The minor version of the scheduler on this machine, 33 for 1.33; kubelet's without one, None when unknown.

        kubeadm's scheduler is of the version in its image's tag. kubelet is at most as new.
        """
        if self.k3s is not None:
            return self.k3s.minor
        version = major_minor(self.node.versions.kubelet) if self.node is not None else None
        in_tag = self.scheduler.minor if self.scheduler is not None else None
        return in_tag if in_tag is not None or version is None else version[1]


def read_facts(
    layout: Layout,
    *,
    driver_root: str | None = None,
    node_name: str | None = None,
    path: str = SYSTEM_PATH,
    timeout_s: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
    hostname: Callable[[], str] = socket.gethostname,
) -> MachineFacts:
    """Read the facts of a box.

    Args:
        layout: the box's paths.
        driver_root: the driver's root; None for the one in plugin.yaml, else `/`.
        node_name: the node's name; None for the one that k3s or kubelet uses.
        path: the PATH for programs.
        timeout_s: how long one program may take; at most eight programs run.
        clock: CLOCK_MONOTONIC, in seconds.
        hostname: returns the machine's name.
    """
    units = kube_units(layout)
    k3s = read_k3s(layout, [u for u in units if not u.is_rke2], path=path, timeout_s=timeout_s, clock=clock)
    installed = _installed(layout)
    root = driver_root or _configured_root(installed) or "/"
    kind = _kind(layout, k3s, rke2=any(unit.is_rke2 for unit in units))
    kubelet = Kubelet({}) if k3s else read_kubelet(layout, path=path, timeout_s=timeout_s)
    name = node_name or _node_name(k3s, kubelet, layout, hostname)
    kubectl = _kubectl(kind, k3s, kubelet, layout, path=path, timeout_s=timeout_s)
    return MachineFacts(
        root=os.geteuid() == 0,
        machine=platform.machine(),
        rooms=tuple(_rooms(layout)),
        kind=kind,
        manifest_mode=_mode(layout.at(MANIFEST)) or 0o600,
        k3s=k3s,
        node_name=name,
        certified_name=certified_name(layout, (k3s or kubelet).kubelet_kubeconfig),
        kubelet=kubelet,
        scheduler=_scheduler(layout),
        node=(node := read_node(kubectl, name) if kubectl else None),
        kubelet_folder=(k3s or kubelet).kubelet_folder,
        sockets=device_sockets(layout),
        registered=registered_devices(layout),
        runtime=_runtime(layout, k3s, kubelet, node, timeout_s=timeout_s, path=path),
        is_wsl=layout.at("/dev/dxg").exists(),
        cards=read_cards(layout, driver_root=root, timeout_s=timeout_s, path=path),
        driver_root=root,
        installed=installed,
    )


def _kind(layout: Layout, k3s: K3s | None, *, rke2: bool) -> NodeKind:
    if k3s is not None:
        return NodeKind.K3S_SERVER if k3s.is_server else NodeKind.K3S_AGENT
    if rke2:
        return NodeKind.RKE2
    if layout.at(MANIFEST).exists():
        return NodeKind.KUBEADM_SERVER
    if layout.at("/etc/kubernetes/kubelet.conf").exists():
        return NodeKind.KUBEADM_NODE
    return NodeKind(other_distribution(layout) or NodeKind.NONE)


def _kubectl(
    kind: NodeKind, k3s: K3s | None, kubelet: Kubelet, layout: Layout, *, path: str, timeout_s: float
) -> Kubectl | None:
    match kind:
        case NodeKind.KUBEADM_SERVER:
            return Kubectl(("kubectl",), str(layout.at(ADMIN_KUBECONFIG)), path, timeout_s)
        case NodeKind.KUBEADM_NODE:
            return Kubectl(("kubectl",), str(layout.at(kubelet.kubelet_kubeconfig)), path, timeout_s)
        case _:
            return kubectl_of(k3s, layout, path=path, timeout_s=timeout_s) if k3s is not None else None


def _runtime(
    layout: Layout, k3s: K3s | None, kubelet: Kubelet, node: NodeSeen | None, *, timeout_s: float, path: str
) -> RuntimeFacts:
    return read_runtime(
        layout,
        endpoint=k3s.endpoint if k3s else kubelet.endpoint,
        own=OwnContainerd(k3s.containerd_config, k3s.containerd_program) if k3s else OwnContainerd(),
        versions=node.versions if node else NodeVersions(),
        timeout_s=timeout_s,
        path=path,
    )


def _scheduler(layout: Layout) -> Manifest | None:
    text = _text(layout.at(MANIFEST))
    try:
        return kubeadm.read(text) if text is not None else None
    except InstallError:
        return None


def _node_name(k3s: K3s | None, kubelet: Kubelet, layout: Layout, hostname: Callable[[], str]) -> str:
    flags = k3s.effective() if k3s else None
    name = (k3s.kubelet_flag("hostname-override") if k3s else "") or kubelet.node_name
    name = name or (flags.last("node-name") if flags else "")
    if name:
        return name.lower()
    identifier = layout.at("/etc/rancher/node/id")
    if flags and flags.on("with-node-id") and identifier.is_file():
        return f"{hostname().lower()}-{identifier.read_text().strip()}"
    return hostname().lower()


def _rooms(layout: Layout) -> Iterator[DiskSpace]:
    for path in _ROOMS:
        place = layout.at(path)
        while not place.exists():
            place = place.parent
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        free = found.f_bavail * found.f_frsize // _MIB
        yield DiskSpace(path, free, read_only=bool(found.f_flag & os.ST_RDONLY))


def _installed(layout: Layout) -> Installed | None:
    version = layout.current.readlink().name if layout.current.is_symlink() else ""
    text = _text(layout.plugin_yaml)
    unit = layout.has_sharing
    return Installed(version, text, unit) if version or text is not None or unit else None


def _configured_root(installed: Installed | None) -> str:
    try:
        document = yaml.safe_load(installed.plugin_yaml or "") if installed else None
    except yaml.YAMLError:
        return ""
    driver = document.get("driver") if isinstance(document, dict) else None
    return str(driver.get("root") or "") if isinstance(driver, dict) else ""


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o7777
    except OSError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
