"""All that is known of boxes, read from the store together."""

import json
from collections.abc import Sequence

from edgegpu_cloud.fleet.views import BoxDetails, box_views
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind


def box_details(tx: Transaction, boxes: Sequence[BoxRecord], *, now_s: float) -> list[BoxDetails]:
    """Return all that is known of some boxes, in their order."""
    devices = [box.device for box in boxes]
    latest = tx.boxes.latest(devices, list(TopicKind))
    specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes])
    return [
        BoxDetails(
            box=view,
            spec=Spec.model_validate_json(json.dumps(specs.get(view.device, {}))),
            latest={kind: one for (device, kind), one in latest.items() if device == view.device},
            orphans=tx.commands.orphans(view.device),
        )
        for view in box_views(tx, boxes, now_s=now_s)
    ]
