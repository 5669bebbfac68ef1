"""What the return of a rollout gives back: from which values to which on how many boxes, and which boxes it leaves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.undo import LeftBox, UndoStep, undo_steps
from edgegpu_cloud.fleet.views import reported_items
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.boxwork import GONE
from edgegpu_cloud.rollouts.changes import RolloutKind
from edgegpu_cloud.rollouts.documents import TAKEN_OVER, BoxBefore, Items, plan_return, read_before
from edgegpu_cloud.rollouts.views import RolloutView
from edgegpu_cloud.store.records import BoxState
from edgegpu_cloud.store.rollouts.records import Json, RolloutBoxRecord
from edgegpu_cloud.store.rollouts.tables import RETURNABLE
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.uplink import ItemReport
from edgegpu_sync.topics import TopicKind

_NAMES = {"policy": "policy", "cards": "exclude", "mib": "unit_mib", "mode": "isolation"}
"""The field of each item of sharing, by the name of its option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """`steps` of the boxes that get back what they had; `left` keep what they have; `more_boxes` are not looked at."""

    steps: Sequence[UndoStep]
    left: Sequence[LeftBox]
    more_boxes: int

    @property
    def boxes(self) -> int:
        """How many boxes get back what they had."""
        return sum(step.boxes for step in self.steps)


def check_returnable(rollout: RolloutView) -> None:
    """Refuse the return of an upgrade. Raises CloudError."""
    if rollout.kind == RolloutKind.UPGRADE:
        raise CloudError(
            phrase("cannot return rollout %(number)s: boxes take no older version of the agent", number=rollout.number),
            remedy=phrase("abort it without the return; an older version is installed on the box"),
        )


def way_back(tx: Transaction, number: int, *, most: int) -> WayBack:
    """Return what a rollout's return would do now on the first `most` of the boxes that it has changed."""
    rows = tx.rollouts.boxes(number, RETURNABLE, changed=True, limit=most)
    records = tx.boxes.get([row.device for row in rows])
    boxes = {device: box for device, box in records.items() if box.state is BoxState.ENROLLED}
    specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes.values()])
    latest = tx.boxes.latest(list(boxes), [TopicKind.REPORTED])
    pairs: list[tuple[Json, Json]] = []
    left: list[LeftBox] = []
    for row in rows:
        why: str = GONE
        if row.device in boxes:
            report = latest.get((row.device, TopicKind.REPORTED))
            spec = Spec.model_validate_json(json.dumps(specs.get(row.device, {})))
            pair = _pair(row, spec, reported_items(report.body) if report is not None else {})
            if not isinstance(pair, str):
                pairs.append(pair)
                continue
            why = pair
        left.append(LeftBox(device=row.device, name=row.name, text=why))
    more = tx.rollouts.changed_count(number, RETURNABLE) - len(rows)
    return WayBack(steps=undo_steps(pairs), left=left, more_boxes=more)


def _pair(row: RolloutBoxRecord, spec: Spec, reported: Mapping[str, ItemReport]) -> tuple[Json, Json] | str:
    """Return the values of a box as they stand and as they come back; else why it keeps what it has."""
    before, wrote = read_before(row.before), row.wrote or {}
    plan = plan_return(before, wrote, spec, reported)
    if plan is None:
        return TAKEN_OVER
    if plan.lost:
        return phrase("what it had before is not known")
    return _values(wrote), _values(_returned(plan.items, before))


def _returned(items: Items, before: BoxBefore) -> Items:
    """Return the items that come back; one that leaves the document is what the box had of its own."""
    return {name: before.present.get(name) if item is None else item for name, item in items.items()}


def _values(items: Items) -> Json:
    """Return the values of items by the names of their options; nothing of one that is not known."""
    values: Json = {}
    for item in items.values():
        if item is not None and "memory_units" in item:
            values |= {"memory_units": item["memory_units"], "core": item["core"]}
        elif item is not None:
            values |= {name: item[field] for field, name in _NAMES.items() if field in item}
    return values
