"""The change of one container's limits in a box's desired document."""

from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import set_spec
from edgegpu_cloud.fleet.limits.changes import LimitsRevision, check_unchanged, replaced_limits
from edgegpu_cloud.fleet.names import refused_names
from edgegpu_cloud.fleet.present.amounts import UNKNOWN, key_of, whole_limits
from edgegpu_cloud.fleet.present.stored import held_on, present_by
from edgegpu_cloud.fleet.specs import ContainerLimits, LimitsPatch, with_limits, without_refused
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind


def set_limits(
    tx: Transaction,
    box: BoxRecord,
    limits: LimitsPatch,
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
    key = key_of(limits)
    if expect_rev is not None:
        check_unchanged(tx, box, key, expect_rev)

    def edit(spec: Spec) -> Spec:
        wanted = _whole(tx, box, spec, limits, cluster=cluster)
        return without_refused(with_limits(spec, wanted, cluster=cluster), limits, refused)

    rev = set_spec(tx, box, edit, who, expect_rev=document_rev)
    return LimitsRevision(rev, replaced_limits(tx, box, key, rev))


def _whole(tx: Transaction, box: BoxRecord, spec: Spec, limits: LimitsPatch, *, cluster: str) -> ContainerLimits:
    if limits.is_whole:
        return whole_limits(limits, UNKNOWN, box=box.name)
    key = key_of(limits)
    latest = {kind: one for (_, kind), one in tx.boxes.latest([box.device], [TopicKind.REPORTED]).items()}
    held = held_on(tx, [box.device], key).get(box.device)
    return whole_limits(limits, present_by(spec, latest, cluster, key, held), box=box.name)
