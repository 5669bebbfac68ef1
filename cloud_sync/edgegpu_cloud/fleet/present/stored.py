"""What containers have on boxes by what is stored: the requests of each box, and the pods of its cluster's boxes."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from edgegpu_cloud.fleet.limits.containers import holding_pods
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.present.amounts import (
    UNKNOWN,
    PresentLimits,
    common_limits,
    held_in_pods,
    present_limits,
    requested_limits,
)
from edgegpu_cloud.fleet.reports import LatestMessages
from edgegpu_cloud.fleet.views import reported_items
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxOrder, BoxQuery
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind


def held_on(tx: Transaction, devices: Collection[DeviceId], key: ContainerKey) -> Mapping[DeviceId, PresentLimits]:
    """Return for boxes what the pods of each one's cluster hold; a box whose app holds nothing is not among them.

    The pods of all boxes of a cluster count, whoever asks: one request is for all of them.
    """
    if not devices:
        return {}
    query = BoxQuery(present_since_s=0.0, devices=frozenset(devices))
    held: dict[str, set[PresentLimits]] = defaultdict(set)
    for cluster, pods in holding_pods(tx, query, key.namespace, key.app):
        held[cluster] |= set(held_in_pods(pods.values(), key))
    if not held:
        return {}
    rows = tx.list.page(query, BoxOrder(limit=len(devices)))
    clusters = {one.device: one.summary.cluster or one.device for one in rows}
    return {device: common_limits(held[cluster]) for device, cluster in clusters.items() if cluster in held}


def present_by(
    spec: Spec, latest: LatestMessages, cluster: str, key: ContainerKey, held: PresentLimits | None
) -> PresentLimits:
    """Return what a container has on a box.

    Args:
        spec: the box's document.
        latest: its last messages, its reported state among them.
        cluster: that it has reported.
        key: the container.
        held: by the pods of its cluster; None: by none.
    """
    reported = latest.get(TopicKind.REPORTED)
    report = reported_items(reported.body).get(key.item) if reported is not None else None
    return present_limits(requested_limits(spec, cluster, key), report, held or UNKNOWN)
