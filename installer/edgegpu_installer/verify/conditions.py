"""The verification of a transaction on this machine, for k3s and for kubeadm."""

import time
from collections.abc import Callable
from dataclasses import replace

from edgegpu_installer.changes import Deadline
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_installer.machine.facts import MachineFacts
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan.plugin_config import configured_model
from edgegpu_installer.plan.site import Site, SiteKind
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome, Verify
from edgegpu_installer.verify import kubeadm_probe as kubeadm_look
from edgegpu_installer.verify.kubeadm import STABLE_S
from edgegpu_installer.verify.probe import k3s_verifier

_AGAIN_S = 60.0
_AGAIN_STABLE_S = 2.0
"""How long a restored scheduler must stay ready: it ran before, and kubelet calls it ready after some 15 s."""


def verifier(
    facts: MachineFacts,
    site: Site,
    *,
    layout: Layout,
    system: Systemd,
    offers: bool,
    say: Callable[[str], None] = lambda _: None,
) -> Verify:
    """Read the state of the machine, and return the function by which a transaction verifies its change.

    `offers`: whether the node shall offer both resources afterwards. `say` gets what is being waited for.
    """
    if facts.k3s is not None:
        return k3s_verifier(
            layout,
            system,
            facts.k3s,
            node=site.node_name if facts.k3s.has_kubelet else "",
            model=configured_model(layout),
            offers=offers and facts.cards.driver,
            say=say,
        )

    def verify(deadline: Deadline) -> None:
        if site.kind.is_server:
            _see_static_pod(site, layout, deadline)
        if offers and not system.unit(PLUGIN_UNIT).is_active:
            raise InstallError(
                f"cannot verify the change: {PLUGIN_UNIT} does not run", f"journalctl -e -u {PLUGIN_UNIT}"
            )

    return verify


def look_again(
    outcome: TransactionOutcome, site: Site, layout: Layout, *, within_s: float = _AGAIN_S
) -> TransactionOutcome:
    """Return the outcome; after a rollback on kubeadm, `why` also says what is wrong with the restored scheduler.

    A rollback waits for k3s, which it restarts itself. The pod of kubeadm's scheduler is restarted by kubelet.
    """
    if outcome.state is not TransactionState.ROLLED_BACK or site.kind is not SiteKind.KUBEADM_SERVER:
        return outcome
    try:
        deadline = Deadline(time.monotonic() + within_s, time.monotonic)
        _see_static_pod(site, layout, deadline, stable_s=_AGAIN_STABLE_S)
    except InstallError as error:
        return replace(outcome, why=f"{outcome.why}; with everything put back: {error}")
    return outcome


def _see_static_pod(site: Site, layout: Layout, deadline: Deadline, *, stable_s: float = STABLE_S) -> None:
    with ClusterClient.from_kubeconfig(layout.at(site.admin_kubeconfig)) as cluster:
        kubeadm_look.verify_scheduler(layout, cluster, node=site.node_name, deadline=deadline, stable_s=stable_s)
