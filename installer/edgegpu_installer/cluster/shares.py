"""The pods that still use edgegpu's resources, which an uninstall shows to its user before it goes on."""

from collections.abc import Iterable

from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.request import ContainerRole
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.kinds import POD, Json


def shares_of(pods: Iterable[Json], model: ResourceModel, *, node: str | None = None) -> tuple[PodView, ...]:
    """Return the pods that request shares and have not ended, sorted by node, namespace and name.

    Args:
        pods: the API's objects.
        model: the resources' names.
        node: only the pods on this node; an empty name means the pods that wait for a node.
    """
    views = (view for pod in pods if (view := pod_view(pod, model)) is not None)
    found = (view for view in views if not view.is_terminal and node in {None, view.node})
    return tuple(sorted(found, key=lambda view: (view.node, view.namespace, view.name)))


def in_use(cluster: ClusterClient, model: ResourceModel, *, node: str | None = None) -> tuple[PodView, ...]:
    """Return the pods of all namespaces that use shares. Arguments as for `shares_of`. Raises ClusterError."""
    fields = "" if node is None else f"spec.nodeName={node}"
    return shares_of(cluster.items(POD, fields=fields), model, node=node)


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def units_of(share: PodView) -> int:
    """Return a pod's memory units as the scheduler counts them: init containers end before the others begin."""
    stays = most = 0
    for one in share.containers:
        units = one.request.memory_units
        most = max(most, stays + units)
        if one.role is not ContainerRole.INIT:
            stays += units
    return max(most, stays)


def said(share: PodView) -> str:
    """Return a line about a pod for the user: its name, its node, and the share of each container."""
    parts = "; ".join(
        f"{one.name}: {_units(one.request.memory_units)}, core {one.request.core}" for one in share.containers
    )
    where = f"on {share.node}" if share.node else "waiting for a node"
    return f"{share.full_name} {where} ({parts})"
