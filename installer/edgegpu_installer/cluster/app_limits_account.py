"""The account for app limits: its objects in the cluster, its kubeconfig here, and the removal of what is unwanted."""

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
    key_of,
    kind_of,
    name_of,
    namespace_of,
)
from edgegpu_installer.cluster.rbac import Account, ClusterRights
from edgegpu_installer.layout import LIMITS_KUBECONFIG, Layout

EVERYWHERE = "*"

_SECRET = 0o600
_POLICY_FROM = 30
"""The first minor version of Kubernetes 1 with ValidatingAdmissionPolicy in v1."""

# The policy is created before the rights that it bounds, and removed after them, because removal is in reverse.
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
"""A function that returns the objects for namespaces (`*`: all but kube-system) and resources, with a policy or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppLimitsAccount:
    """The wanted account: `namespaces` in which app limits may be changed; without any there is no account.

    `lease`: the object that the account creates in the cluster when it is used; it is removed with the account.
    """

    namespaces: tuple[str, ...]
    objects: Objects
    lease: Json

    def rights(self, base: ClusterRights, model: ResourceModel, *, policy: bool) -> ClusterRights:
        """Return the release's rights and those of this account; `*` counts only with a policy."""
        chosen = self.namespaces if policy else tuple(one for one in self.namespaces if one != EVERYWHERE)
        return _with(base, self.objects(chosen, model, policy)) if chosen else base

    def there(self, cluster: ClusterClient, base: ClusterRights) -> ClusterRights:
        """Return the release's rights and all that an earlier choice can have left there. Raises ClusterError."""
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
        places = {key_of(item) for item in known}
        return _with(base, [*known, *(item for item in bound if key_of(item) not in places)])


def has_policies(cluster: ClusterClient) -> bool:
    """Return whether this Kubernetes has ValidatingAdmissionPolicy. Raises ClusterError."""
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
    """Create the wanted account, remove what is unwanted, and return its kubeconfig, absent without an account.

    Args:
        cluster: the API server, as the administrator; `base` is granted already.
        base: the release's rights.
        limits: the wanted account.
        model: the resources that may be written.
        layout: the machine's paths; a kubeconfig that works is kept byte for byte.
        say: gets notes for the user.
        pace: how long to wait for the token.

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
    text = accounts.join(cluster, wanted, Account.LIMITS, pace=pace).kubeconfig()
    return FileChange(LIMITS_KUBECONFIG, text.encode(), mode=_SECRET)


def there(cluster: ClusterClient, base: ClusterRights, limits: AppLimitsAccount | None) -> ClusterRights:
    """Return the release's rights and all that may be in the cluster for app limits. Raises ClusterError."""
    return base if limits is None else limits.there(cluster, base)


def preview(layout: Layout, limits: AppLimitsAccount) -> FileChange:
    """Return the change of the kubeconfig that a dry run shows."""
    if not limits.namespaces:
        return FileChange(LIMITS_KUBECONFIG)
    path = layout.at(LIMITS_KUBECONFIG)
    content = path.read_bytes() if path.is_file() else b"(made by the installation)\n"
    return FileChange(LIMITS_KUBECONFIG, content, mode=_SECRET)


def _possible(
    cluster: ClusterClient, limits: AppLimitsAccount, *, policy: bool, say: Callable[[str], None]
) -> AppLimitsAccount:
    """Return the account without the namespaces that are impossible in this cluster, with a note for each."""
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
    """Remove the objects of an earlier choice that are not wanted now; the lease only goes with the account."""
    keep = {key_of(item) for item in wanted.items}
    if _account_of(wanted):
        keep.add(key_of(lease))
    gone = tuple(item for item in there.items if key_of(item) not in keep)
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
