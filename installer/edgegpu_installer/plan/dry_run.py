"""A dry run's account of the cluster: marks on nodes, the accounts' objects, the install lease."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster import accounts, lease
from edgegpu_installer.cluster.app_limits_account import AppLimitsAccount, has_policies, there
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.kinds import NODE, Json, name_of
from edgegpu_installer.cluster.nodes import EXTENDER_ANNOTATION, GPU_LABEL, marks_of
from edgegpu_installer.cluster.rbac import ClusterRights
from edgegpu_installer.errors import InstallError

UNKNOWN = "unknown"
"""The `change` of a mark or an object whose present state cannot be read."""

_NEW, _AS_IT_IS, _CHANGED, _REMOVED = "new", "as it is", "changed", "removed"
_LEASE = f"Lease {lease.NAMESPACE}/{lease.NAME}"
_FOR_THE_RUN = "for the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkChange:
    """A label or an annotation of a node. `change` is new, changed, removed, as it is, or unknown."""

    node: str
    kind: str
    name: str
    value: str
    change: str


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object of the cluster, by kind and name. `change` is as for a mark, or `for the run`."""

    name: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would change in the cluster; `unseen`: why its present state could not be read."""

    marks: tuple[MarkChange, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    unseen: str = ""

    def document(self) -> dict[str, object]:
        """Return the cluster's part of what `--dry-run --json` prints."""
        labels, objects = [asdict(mark) for mark in self.marks], [asdict(one) for one in self.objects]
        return {"labels": labels, "objects": objects, "unseen": self.unseen}


def of_install(
    open_: Callable[[], ClusterClient],
    rights: ClusterRights,
    *,
    gpu: Iterable[str],
    extender: str,
    by: str,
    limits: AppLimitsAccount | None = None,
    model: ResourceModel | None = None,
) -> DryRun:
    """Return what an installation on a server would change in the cluster.

    Args:
        open_: opens the cluster; a cluster that cannot be reached is reported, and is no error.
        rights: the release's objects.
        gpu: the nodes to label.
        extender: the server to annotate, empty for none.
        by: the version that the annotation names.
        limits: the account for app limits that is wanted.
        model: the resources that app limits are about.
    """
    wanted = [(name, "label", GPU_LABEL, "true") for name in gpu]
    if extender:
        wanted.append((extender, "annotation", EXTENDER_ANNOTATION, by))
    try:
        with open_() as cluster:
            policy = limits is None or has_policies(cluster)
            now = {name_of(node): node for node in cluster.items(NODE)}
            wanted_rights = _with_limits(rights, limits, model, policy=policy)
            present = set(accounts.present(cluster, wanted_rights))
    except InstallError as error:
        marks = tuple(MarkChange(node=n, kind=k, name=m, value=v, change=UNKNOWN) for n, k, m, v in wanted)
        wanted_rights = _with_limits(rights, limits, model, policy=True)
        objects = tuple(ObjectChange(one, UNKNOWN) for one in accounts.named(wanted_rights))
        return DryRun(marks=marks, objects=(*objects, ObjectChange(_LEASE, _FOR_THE_RUN)), unseen=error.message)
    return DryRun(
        marks=tuple(
            MarkChange(node=n, kind=k, name=m, value=v, change=_mark_change(now.get(n), k, name=m, value=v))
            for n, k, m, v in wanted
        ),
        objects=(
            *(ObjectChange(one, _AS_IT_IS if one in present else _NEW) for one in accounts.named(wanted_rights)),
            ObjectChange(_LEASE, _FOR_THE_RUN),
        ),
    )


def _with_limits(
    rights: ClusterRights, limits: AppLimitsAccount | None, model: ResourceModel | None, *, policy: bool
) -> ClusterRights:
    return rights if limits is None else limits.rights(rights, model or ResourceModel(), policy=policy)


def of_uninstall(
    open_: Callable[[], ClusterClient],
    rights: ClusterRights,
    *,
    node: str,
    is_server: bool,
    limits: AppLimitsAccount | None = None,
) -> DryRun:
    """Return what an uninstall would remove: the node's marks; on a server without other machines, the accounts."""
    held = (ObjectChange(_LEASE, _FOR_THE_RUN),) if is_server else ()
    try:
        with open_() as cluster:
            found = cluster.find(NODE, node)
            marks = () if found is None else tuple(_removed(found))
            if not is_server:
                return DryRun(marks=marks)
            others = used_by_others(cluster, node)
            change = f"stays for {', '.join(others)}" if others else _REMOVED
            all_rights = there(cluster, rights, limits)
            objects = tuple(ObjectChange(one, change) for one in accounts.present(cluster, all_rights))
            return DryRun(marks=marks, objects=(*objects, *held))
    except InstallError as error:
        return DryRun(objects=held, unseen=error.message)


def used_by_others(cluster: ClusterClient, node: str) -> tuple[str, ...]:
    """Return the nodes other than this one that still have edgegpu. Raises ClusterError."""
    found = (one for one in cluster.items(NODE) if marks_of(one).annotations)
    return tuple(name_of(one) for one in found if name_of(one) != node)


def _mark_change(node: Json | None, kind: str, *, name: str, value: str) -> str:
    if node is None:
        return "no such node"
    now = ((node.get("metadata") or {}).get(f"{kind}s") or {}).get(name)
    if now is None:
        return _NEW
    return _AS_IT_IS if now == value else _CHANGED


def _removed(node: Json) -> Iterable[MarkChange]:
    marks = marks_of(node)
    for kind, values in (("label", marks.labels), ("annotation", marks.annotations)):
        for name, value in values.items():
            yield MarkChange(node=name_of(node), kind=kind, name=name, value=value, change=_REMOVED)
