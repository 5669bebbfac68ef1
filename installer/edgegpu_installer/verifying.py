"""What a transaction on this machine has to verify, for k3s and for kubeadm."""

from edgegpu_core.model import ResourceModel
from edgegpu_installer import kubeadm_look
from edgegpu_installer.changes import Deadline
from edgegpu_installer.cluster import Cluster
from edgegpu_installer.errors import InstallError
from edgegpu_installer.facts import Facts
from edgegpu_installer.layout import PLUGIN_UNIT, PLUGIN_YAML, Layout
from edgegpu_installer.pluginyaml import resource_model
from edgegpu_installer.site import Site
from edgegpu_installer.systemd import Systemd
from edgegpu_installer.transaction import Verify
from edgegpu_installer.verifylook import k3s_verifier


def verifier(facts: Facts, site: Site, *, layout: Layout, system: Systemd, offers: bool) -> Verify:
    """Look how the machine is now, and return what a transaction calls after its change.

    `offers`: whether the node shall offer both resources afterwards.
    """
    if facts.k3s is not None:
        return k3s_verifier(
            layout,
            system,
            facts.k3s,
            node=site.node_name,
            model=configured_model(layout),
            offers=offers and facts.cards.driver,
        )

    def verify(deadline: Deadline) -> None:
        if site.kind.is_server:
            with Cluster.from_kubeconfig(layout.at(site.admin_kubeconfig)) as cluster:
                kubeadm_look.verify_scheduler(layout, cluster, node=site.node_name, deadline=deadline)
        if offers and not system.unit(PLUGIN_UNIT).is_active:
            raise InstallError(
                f"cannot verify the change: {PLUGIN_UNIT} does not run", f"journalctl -e -u {PLUGIN_UNIT}"
            )

    return verify


def configured_model(layout: Layout) -> ResourceModel:
    """Return the names of what this machine offers, by its configuration; the defaults without one."""
    path = layout.at(PLUGIN_YAML)
    return resource_model(path.read_text() if path.exists() else None)
