"""The change of one container's limits in a box's desired document."""

from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import set_spec
from edgegpu_cloud.fleet.limits.changes import LimitsRevision, check_unchanged, replaced_limits
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.names import refused_names
from edgegpu_cloud.fleet.specs import ContainerLimits, with_limits, without_refused
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.messages.spec import Spec


def set_limits(
    tx: Transaction,
    box: BoxRecord,
    limits: ContainerLimits,
    who: Author,
    *,
    cluster: str,
    expect_rev: int | None,
    document_rev: int | None,
) -> LimitsRevision:
    """Set the limits of one container of an app, as `Fleet.set_limits` says, which has found that this box may.

    `cluster` is the one that the box has reported.
    """
    refused = refused_names(tx, box)
    key = ContainerKey(limits.namespace, limits.app, limits.container)
    if expect_rev is not None:
        check_unchanged(tx, box, key, expect_rev)

    def edit(spec: Spec) -> Spec:
        return without_refused(with_limits(spec, limits, cluster=cluster), limits, refused)

    rev = set_spec(tx, box, edit, who, expect_rev=document_rev)
    return LimitsRevision(rev, replaced_limits(tx, box, key, rev))
