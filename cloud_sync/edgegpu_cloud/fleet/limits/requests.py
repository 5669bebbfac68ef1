"""What is requested of a box item by item: when, by whom, and what came of it; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from edgegpu_cloud.fleet.limits.outcomes import OutcomeState, state_of
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.views import BoxDetails, current_report
from edgegpu_cloud.store.records import Revision
from edgegpu_cloud.store.settlements.records import BoxSettlements, RequestKey
from edgegpu_sync.messages.spec import AnyItem, asked
from edgegpu_sync.messages.uplink import ItemReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedItem:
    """An item of a box's desired document, and its outcome. Times are seconds since 1970, None where not known.

    `report` is the box's own of this request; None while it has none.
    """

    name: str
    item: AnyItem
    requested_at_s: float | None
    by: str
    state: OutcomeState
    report: ItemReport | None
    settled_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    at_s: float
    by: str
    key: tuple[int, int]


def requested_items(
    details: BoxDetails, revisions: Iterable[Revision], settlements: BoxSettlements | None = None
) -> list[RequestedItem]:
    """Return what is requested of a box now, in the order of settlement.

    Args:
        details: of the box.
        revisions: its documents, oldest first.
        settlements: of the box, which say when an item was settled.
    """
    when: dict[str, _Asked] = {}
    for revision in revisions:
        for one in asked(revision.spec, revision.rev):
            key = (one.key.rev, one.key.retry)
            if one.name not in when or when[one.name].key != key:
                when[one.name] = _Asked(revision.at_s, revision.by, key)
    return [
        _requested(details, name, item, when.get(name), _settled_at_s(settlements, name, item))
        for name, item in desired_items(details.spec).items()
    ]


def _settled_at_s(settlements: BoxSettlements | None, name: str, item: AnyItem) -> float | None:
    key = RequestKey(name, item.rev, item.retry)
    found = settlements.by_key.get(key) if settlements is not None else None
    return found.at_s if found is not None else None


def _requested(
    details: BoxDetails, name: str, item: AnyItem, request: _Asked | None, settled_at_s: float | None
) -> RequestedItem:
    report = current_report(details.box.items.get(name), item)
    state = state_of(report)
    return RequestedItem(
        name=name,
        item=item,
        requested_at_s=request.at_s if request else None,
        by=request.by if request else "",
        state=state,
        report=report,
        settled_at_s=settled_at_s if state not in {OutcomeState.WAITING, OutcomeState.WORKING} else None,
    )
