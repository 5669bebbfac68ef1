"""What a machine is to an installation, from what was read of it."""

from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine.facts import MachineFacts, NodeKind
from edgegpu_installer.plan.site import Site, SiteKind
from edgegpu_installer.scheduler.kubeadm import ADMIN_KUBECONFIG
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE

_K3S_FLAGS = {"profiling": "false"}
"""What k3s itself gives its scheduler, as far as a file silences it (its pkg/daemons/control/server.go)."""


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
