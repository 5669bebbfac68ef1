"""All that is known of boxes, read from the store together."""

import json
from collections.abc import Collection, Sequence

from edgegpu_cloud.fleet.reports import by_box
from edgegpu_cloud.fleet.views import BoxDetails, box_views
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind


def box_details(
    tx: Transaction,
    boxes: Sequence[BoxRecord],
    *,
    now_s: float,
    kinds: Collection[TopicKind] = tuple(TopicKind),
    orphans: bool = True,
) -> list[BoxDetails]:
    """Return all that is known of some boxes, in their order: of their last messages those of these kinds.

    Without `orphans` nothing is asked of the ends of unknown commands, which are one query for each box.
    """
    devices = [box.device for box in boxes]
    latest = by_box(tx.boxes.latest(devices, kinds), devices)
    specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes])
    return [
        BoxDetails(
            box=view,
            spec=Spec.model_validate_json(json.dumps(specs.get(view.device, {}))),
            latest=latest[view.device],
            orphans=tx.commands.orphans(view.device) if orphans else (),
        )
        for view in box_views(tx, boxes, now_s=now_s)
    ]


def details_page(
    tx: Transaction, query: BoxQuery, *, after: str, limit: int, now_s: float
) -> tuple[list[BoxDetails], str]:
    """Return what is known of the boxes of a query by name, those after `after`, and `after` for the next page.

    That is empty where there is none. Nothing is asked of the ends of unknown commands, as in `box_details`.
    """
    devices, more = tx.list.device_page(query, after=after, limit=limit)
    records = tx.boxes.get(devices)
    return box_details(tx, [records[device] for device in devices], now_s=now_s, orphans=False), more
