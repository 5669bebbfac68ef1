"""What the boxes of a filter would make of limits, page by page: each is judged with its whole cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.preview.limits import Preview, preview
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.records import BoxState
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimitsPreview:
    """What a box would make of limits; `preview` is None where that is not known.

    `text` says why then, `remedy` what to do.
    """

    device: DeviceId
    name: str
    preview: Preview | None
    text: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsPreviewPage:
    """Boxes by name with what they would make of limits, and `after` for the next page; empty where there is none.

    `container`: the one that is meant.
    """

    container: str
    boxes: Sequence[BoxLimitsPreview]
    next: str


def limits_preview_page(
    tx: Transaction, query: BoxQuery, limits: ContainerLimits, *, after: str, limit: int, now_s: float
) -> LimitsPreviewPage:
    """Return a page of the boxes of a query with what each would make of limits, by the last reports."""
    found = tx.list.devices(query, after=after, limit=limit + 1)
    devices = [device for _, device in found[:limit]]
    records = tx.boxes.get(devices)
    asked = box_details(tx, [records[device] for device in devices], now_s=now_s)
    clusters = _clusters(tx, query, asked, now_s=now_s)
    boxes = [_judged(one, clusters[one.box.cluster] if one.box.cluster else (), limits) for one in asked]
    return LimitsPreviewPage(
        container=limits.container, boxes=boxes, next=found[limit - 1][0] if len(found) > limit else ""
    )


def _clusters(
    tx: Transaction, query: BoxQuery, asked: Sequence[BoxDetails], *, now_s: float
) -> Mapping[str, Sequence[BoxDetails]]:
    """Return the boxes of the clusters of these that the person sees, by cluster."""
    names = sorted({one.box.cluster for one in asked} - {""})
    if not names:
        return {}
    there = BoxQuery(
        present_since_s=query.present_since_s, scope=query.scope, clusters=names, states=[BoxState.ENROLLED]
    )
    known = {one.box.device for one in asked}
    records = tx.boxes.get([device for device in tx.list.ids(there) if device not in known])
    found: dict[str, list[BoxDetails]] = {name: [] for name in names}
    for one in (*asked, *box_details(tx, list(records.values()), now_s=now_s)):
        found.setdefault(one.box.cluster, []).append(one)
    return found


def _judged(one: BoxDetails, cluster: Sequence[BoxDetails], limits: ContainerLimits) -> BoxLimitsPreview:
    box = one.box
    try:
        judged = preview(one, [other for other in cluster if other.box.device != box.device], limits)
    except CloudError as error:
        return BoxLimitsPreview(device=box.device, name=box.name, preview=None, text=error.text, remedy=error.remedy)
    return BoxLimitsPreview(device=box.device, name=box.name, preview=judged)
