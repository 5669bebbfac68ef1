"""What came of audited revisions item by item: by settlements, else by what the box reports of its present document."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.audit.reading import StoredChange
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState, RequestOutcome, outcome_of_settlement, state_of
from edgegpu_cloud.fleet.limits.report_words import report_words
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.views import current_report, reported_items
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.settlements.records import RequestKey, StoredSettlement
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AnyItem, Spec
from edgegpu_sync.messages.uplink import ItemReport
from edgegpu_sync.topics import TopicKind

Outcomes = Mapping[str, RequestOutcome]


@dataclass(frozen=True, slots=True)
class _Present:
    """What is requested of a box now, what it reports, and from when on all of its settlements are kept."""

    items: Mapping[str, AnyItem]
    told: Mapping[str, ItemReport]
    since_s: float


def request_outcomes(tx: Transaction, changes: Sequence[StoredChange]) -> dict[int, Outcomes | None]:
    """Return by the entry's number what came of each item that a revision requests.

    None: the entry does not say which items those are. Empty: it requests none, as requests were taken back.
    """
    wanted = {one.entry.number: _keys(one.after) for one in changes}
    of_box: dict[DeviceId, set[RequestKey]] = defaultdict(set)
    for one in changes:
        of_box[DeviceId(one.entry.device)].update(wanted[one.entry.number] or ())
    held = tx.settlements.held(of_box)
    present = _present(tx, {device for device, keys in of_box.items() if not keys <= held.get(device, {}).keys()})
    return {
        one.entry.number: _outcomes(
            one.entry.at_s,
            wanted[one.entry.number],
            held.get(DeviceId(one.entry.device), {}),
            present.get(DeviceId(one.entry.device)),
        )
        for one in changes
    }


def _keys(after: Json | None) -> list[RequestKey] | None:
    if after is None:
        return None
    items = {name: item for name, item in after.items() if isinstance(item, dict) and isinstance(item.get("rev"), int)}
    return [RequestKey(name, item["rev"], int(item.get("retry", 0))) for name, item in items.items()]


def _present(tx: Transaction, devices: Collection[DeviceId]) -> dict[DeviceId, _Present]:
    """Return what is requested of those of these boxes that exist."""
    boxes = tx.boxes.get(devices) if devices else {}
    if not boxes:
        return {}
    specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes.values()])
    latest = tx.boxes.latest(list(boxes), [TopicKind.REPORTED])
    since = tx.settlements.since(boxes)
    bodies = {device: one.body for (device, _), one in latest.items()}
    return {
        device: _Present(
            desired_items(Spec.model_validate_json(json.dumps(specs.get(device, {})))),
            reported_items(bodies.get(device, {})),
            since[device],
        )
        for device in boxes
    }


def _outcomes(
    at_s: float,
    keys: Sequence[RequestKey] | None,
    held: Mapping[RequestKey, StoredSettlement],
    present: _Present | None,
) -> Outcomes | None:
    if keys is None:
        return None
    return {
        key.item: _settled(held[key], key, present) if key in held else _unsettled(at_s, key, present) for key in keys
    }


def _settled(one: StoredSettlement, key: RequestKey, present: _Present | None) -> RequestOutcome:
    """Return what came of a request by its settlement; of the present one the report has the numbers too."""
    outcome = outcome_of_settlement(one)
    item = present.items.get(key.item) if present is not None else None
    if present is None or item is None or (item.rev, item.retry) != (key.rev, key.retry):
        return outcome
    report = current_report(present.told.get(key.item), item)
    same = report is not None and (report.code or "", report.text or "") == (one.code, one.text)
    return replace(outcome, text=report_words(report)) if report is not None and same else outcome


def _unsettled(at_s: float, key: RequestKey, present: _Present | None) -> RequestOutcome:
    """Return what came of a request that has no settlement: it is the present one, or another took its place."""
    if present is None:
        return RequestOutcome(state=OutcomeState.NOT_KNOWN)
    item = present.items.get(key.item)
    if item is not None and (item.rev, item.retry) == (key.rev, key.retry):
        report = current_report(present.told.get(key.item), item)
        code, text = (report.code or "", report_words(report)) if report is not None else ("", "")
        return RequestOutcome(state=state_of(report), code=code, text=text)
    if at_s < present.since_s:
        return RequestOutcome(state=OutcomeState.NOT_KNOWN)
    return RequestOutcome(state=OutcomeState.REPLACED)
