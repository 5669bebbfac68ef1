"""What the boxes of a filter would make of limits, page by page: each is judged with its whole cluster."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.present.amounts import whole_in
from edgegpu_cloud.fleet.present.steps import LimitsSteps, steps_of_query
from edgegpu_cloud.fleet.preview.limits import Preview, preview
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.records import BoxState
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxOrder, BoxQuery
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind

AT_ONCE = 50
"""Boxes whose reports are in memory at one time; a cluster that has more of them is there as a whole."""

_KINDS = (TopicKind.STATUS, TopicKind.INVENTORY, TopicKind.ALLOC)
"""The kinds of messages by which limits are judged."""

_EVERY = 1_000_000
"""More boxes than there are."""

T = TypeVar("T")


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

    `container`: the one that is meant. `seen`: of the first page, all boxes as they were seen (`BoxSet.text`), for
    `Operations.start`. `steps`: of the first page, from which limits to which they lead on all boxes.
    """

    container: str
    boxes: Sequence[BoxLimitsPreview]
    next: str
    seen: str = ""
    steps: LimitsSteps | None = None


def limits_preview_page(
    tx: Transaction, query: BoxQuery, limits: LimitsPatch, *, after: str, limit: int, now_s: float
) -> LimitsPreviewPage:
    """Return a page of the boxes of a query with what each would make of limits, by the last reports."""
    devices, more = tx.list.device_page(query, after=after, limit=limit)
    judged = judged_in_clusters(tx, query, devices, partial(_judged, limits=limits), now_s=now_s)
    steps = None if after else steps_of_query(tx, query, limits)
    boxes = [judged[device] for device in devices]
    return LimitsPreviewPage(container=limits.container, boxes=boxes, next=more, steps=steps)


def judged_in_clusters(
    tx: Transaction,
    query: BoxQuery,
    devices: Sequence[DeviceId],
    judge: Callable[[BoxDetails, Sequence[BoxDetails]], T],
    *,
    now_s: float,
) -> dict[DeviceId, T]:
    """Return what is judged of some boxes of a query, each with the others of its cluster that the person sees.

    Pods of an app may be on each of these. They are loaded cluster by cluster, about `AT_ONCE` boxes together.
    """
    found: dict[DeviceId, T] = {}
    for clusters in _together(_clusters(tx, query, devices)):
        records = tx.boxes.get([device for one in clusters for device in one.boxes])
        loaded = box_details(tx, list(records.values()), now_s=now_s, kinds=_KINDS, orphans=False)
        details = {one.box.device: one for one in loaded}
        for cluster in clusters:
            for device in cluster.asked:
                if device in details:
                    others = [details[one] for one in cluster.boxes if one != device and one in details]
                    found[device] = judge(details[device], others)
    return found


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Boxes of one cluster: those to judge, and all that the person sees, these among them."""

    asked: list[DeviceId]
    boxes: dict[DeviceId, None]


def _clusters(tx: Transaction, query: BoxQuery, devices: Sequence[DeviceId]) -> Sequence[_Cluster]:
    """Return the clusters of some boxes; a box that has reported none is one of its own."""
    asked = BoxQuery(present_since_s=query.present_since_s, devices=frozenset(devices))
    names = {one.device: one.summary.cluster for one in tx.list.page(asked, BoxOrder(limit=len(devices)))}
    found: dict[str, _Cluster] = {}
    for device in devices:
        cluster = found.setdefault(names.get(device) or device, _Cluster([], {}))
        cluster.asked.append(device)
        cluster.boxes[device] = None
    if clusters := sorted({*names.values()} - {""}):
        there = BoxQuery(
            present_since_s=query.present_since_s, scope=query.scope, clusters=clusters, states=[BoxState.ENROLLED]
        )
        for one in tx.list.page(there, BoxOrder(limit=_EVERY)):
            found[one.summary.cluster].boxes[one.device] = None
    return list(found.values())


def _together(clusters: Sequence[_Cluster]) -> Iterator[Sequence[_Cluster]]:
    """Yield clusters that are loaded together."""
    part, boxes = list[_Cluster](), 0
    for cluster in clusters:
        if part and boxes + len(cluster.boxes) > AT_ONCE:
            yield part
            part, boxes = [], 0
        part.append(cluster)
        boxes += len(cluster.boxes)
    if part:
        yield part


def _judged(asked: BoxDetails, others: Sequence[BoxDetails], limits: LimitsPatch) -> BoxLimitsPreview:
    box = asked.box
    try:
        judged = preview(asked, others, whole_in(limits, asked, others))
    except CloudError as error:
        return BoxLimitsPreview(device=box.device, name=box.name, preview=None, text=error.text, remedy=error.remedy)
    return BoxLimitsPreview(device=box.device, name=box.name, preview=judged)
