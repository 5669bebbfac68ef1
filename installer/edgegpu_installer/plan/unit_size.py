"""The refusal of a new unit size while pods of the node hold shares; the cloud refuses it too."""

from edgegpu_installer.cluster import shares
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.plugin_config import configured_model, unit_mib


class UnitInUseError(InstallError):
    """Pods hold shares that are counted in units of the present size."""

    code = "IN_USE"


def changes(layout: Layout, wanted_mib: int | None) -> bool:
    """Return whether an installation with this size would change the present unit."""
    return wanted_mib is not None and layout.has_sharing and wanted_mib != _now_mib(layout)


def refuse_while_held(cluster: ClusterClient, layout: Layout, wanted_mib: int | None, *, node: str) -> None:
    """Refuse a new size while pods of this node hold shares: their devices would stand for other amounts of memory.

    Raises:
        UnitInUseError: pods of this node hold shares.
        ClusterError: the cluster cannot be asked.
    """
    if not changes(layout, wanted_mib):
        return
    held = [shares.said(pod) for pod in shares.in_use(cluster, configured_model(layout), node=node)]
    if held:
        many = f"{len(held)} pods of this node hold shares" if len(held) > 1 else "a pod of this node holds a share"
        raise UnitInUseError(
            f"cannot change the unit to {wanted_mib} MiB: {many} in units of {_now_mib(layout)} MiB:\n  "
            + "\n  ".join(held),
            "stop them, or leave --unit-mib out",
        )


def _now_mib(layout: Layout) -> int:
    there = layout.plugin_yaml
    return unit_mib(there.read_text() if there.exists() else None)
