"""The account for app limits: its objects in the cluster, its kubeconfig here, and what of it goes where it shrinks."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import FileChange
from edgegpu_installer.cluster import accounts
from edgegpu_installer.cluster.accounts import ControllerWait
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    LEASE,
    NAMESPACE,
    POLICIES,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Json,
    ObjectKind,
    kind_of,
    name_of,
    namespace_of,
)
from edgegpu_installer.cluster.rbac import Account, ClusterRights
from edgegpu_installer.layout import LIMITS_KUBECONFIG, Layout

EVERYWHERE = "*"

_SECRET = 0o600
_POLICY_FROM = 30
"""The first minor version of Kubernetes 1 that has ValidatingAdmissionPolicy for good."""

# Bounds stand before what they bound, and go after it: objects are removed in the reverse order.
_ORDER: tuple[ObjectKind, ...] = (
    LEASE,
    SERVICE_ACCOUNT,
    SECRET,
    *POLICIES,
    CLUSTER_ROLE,
    ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE_BINDING,
)
_OURS = {"app.kubernetes.io/part-of": "edgegpu"}

Objects = Callable[[Sequence[str], ResourceModel, bool], Sequence[Json]]
"""The objects for namespaces (`*`: all but kube-system), of these resources, with or without the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppLimitsAccount:
    """What is asked for: `namespaces` in which apps may be changed, none for no account at all.

    `lease`: what the account makes in the cluster when it is used; it goes with it.
    """

    namespaces: tuple[str, ...]
    objects: Objects
    lease: Json

    def rights(self, base: ClusterRights, model: ResourceModel, *, policy: bool) -> ClusterRights:
        """Return the release's rights with these; without a policy not everywhere."""
        chosen = self.namespaces if policy else tuple(one for one in self.namespaces if one != EVERYWHERE)
        return _with(base, self.objects(chosen, model, policy)) if chosen else base

    def there(self, cluster: ClusterClient, base: ClusterRights) -> ClusterRights:
        """Return the rights with all that may be in the cluster, whatever was chosen before. Raises ClusterError."""
        model = ResourceModel()
        everywhere = self.objects([EVERYWHERE], model, True)  # noqa: FBT003  (a callable's)
        one = self.objects(["x"], model, False)  # noqa: FBT003
        names = {name_of(item) for item in one if _is_binding(item) and namespace_of(item) == "x"}
        found = {
            str(item["metadata"]["namespace"])
            for name in names
            for item in cluster.items(ROLE_BINDING, fields=f"metadata.name={name}")
        }
        bound = [item for item in self.objects(sorted(found), model, False) if _is_binding(item)] if found else []  # noqa: FBT003
        known = [*everywhere, self.lease]
        places = {_place(item) for item in known}
        return _with(base, [*known, *(item for item in bound if _place(item) not in places)])


def has_policies(cluster: ClusterClient) -> bool:
    """Say whether this Kubernetes takes the policy. Raises ClusterError."""
    found = re.match(r"v1\.(\d+)", cluster.version())
    return found is not None and int(found[1]) >= _POLICY_FROM


def grant(
    cluster: ClusterClient,
    base: ClusterRights,
    limits: AppLimitsAccount,
    *,
    model: ResourceModel,
    layout: Layout,
    say: Callable[[str], None],
    pace: ControllerWait | None = None,
) -> FileChange:
    """Make the account as it is asked for, take away what is not, and return its kubeconfig, absent without an account.

    Args:
        cluster: as the administrator; `base` is granted already.
        base: the release's rights.
        limits: what is asked for.
        model: the resources that may be written.
        layout: where the kubeconfig lies; one that works is kept to the byte.
        say: gets notes for people.
        pace: how long the token is waited for.

    Raises:
        InstallError: no token came.
        ClusterError: the API server refuses, or is away.
    """
    policy = has_policies(cluster)
    limits = _possible(cluster, limits, policy=policy, say=say)
    wanted = limits.rights(base, model, policy=policy)
    _shrink(cluster, limits.there(cluster, base), wanted, lease=limits.lease, pace=pace)
    if len(wanted.items) == len(base.items):
        return FileChange(LIMITS_KUBECONFIG)
    own = ClusterRights(wanted.items[len(base.items) :], base.namespace)
    accounts.grant(cluster, own)
    path = layout.at(LIMITS_KUBECONFIG)
    if accounts.usable(path, Account.LIMITS):
        return FileChange(LIMITS_KUBECONFIG, path.read_bytes(), mode=_SECRET)
    text = accounts.mint(cluster, wanted, Account.LIMITS, pace=pace)
    return FileChange(LIMITS_KUBECONFIG, text.encode(), mode=_SECRET)


def there(cluster: ClusterClient, base: ClusterRights, limits: AppLimitsAccount | None) -> ClusterRights:
    """Return the rights with all that may be in the cluster for app limits. Raises ClusterError."""
    return base if limits is None else limits.there(cluster, base)


def foreseen(layout: Layout, limits: AppLimitsAccount) -> FileChange:
    """Return the kubeconfig as a dry run shows it."""
    if not limits.namespaces:
        return FileChange(LIMITS_KUBECONFIG)
    path = layout.at(LIMITS_KUBECONFIG)
    content = path.read_bytes() if path.is_file() else b"(made by the installation)\n"
    return FileChange(LIMITS_KUBECONFIG, content, mode=_SECRET)


def _possible(
    cluster: ClusterClient, limits: AppLimitsAccount, *, policy: bool, say: Callable[[str], None]
) -> AppLimitsAccount:
    """Leave out what this cluster does not have, and say so."""
    chosen = []
    for name in limits.namespaces:
        if name == EVERYWHERE and not policy:
            say("note: no app limits: before Kubernetes 1.30 their namespaces have to be named, --limits-namespace")
        elif name != EVERYWHERE and cluster.find(NAMESPACE, name) is None:
            say(f"note: no app limits in {name}: there is no such namespace; install again when there is")
        else:
            chosen.append(name)
    return replace(limits, namespaces=tuple(chosen))


def _shrink(
    cluster: ClusterClient, there: ClusterRights, wanted: ClusterRights, *, lease: Json, pace: ControllerWait | None
) -> None:
    """Remove what is in the cluster of an earlier choice and is not wanted now; the lease only with everything."""
    keep = {_place(item) for item in wanted.items}
    if _account_of(wanted):
        keep.add(_place(lease))
    gone = tuple(item for item in there.items if _place(item) not in keep)
    if gone:
        accounts.remove(cluster, ClusterRights(gone, there.namespace), pace=pace)


def _account_of(rights: ClusterRights) -> bool:
    return any(kind_of(item) == SERVICE_ACCOUNT and name_of(item) == Account.LIMITS for item in rights.items)


def _with(base: ClusterRights, items: Sequence[Json]) -> ClusterRights:
    ordered = sorted(items, key=lambda item: _ORDER.index(kind_of(item)))
    return ClusterRights((*base.items, *(_marked(item) for item in ordered)), base.namespace)


def _marked(item: Json) -> Json:
    metadata: dict[str, Any] = dict(item["metadata"])
    return {**item, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **_OURS}}}


def _is_binding(item: Json) -> bool:
    return kind_of(item) == ROLE_BINDING


def _place(item: Json) -> tuple[str, str, str]:
    return kind_of(item).kind, name_of(item), namespace_of(item)
