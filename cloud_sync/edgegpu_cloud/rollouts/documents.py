"""A box's desired document in a rollout: what it had, whether the change was applied, what brings it back; pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from edgegpu_cloud.fleet.limits.report_words import report_words
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.views import current_reports
from edgegpu_cloud.phrases import joined, phrase
from edgegpu_cloud.result_codes import reported
from edgegpu_cloud.rollouts.changes import RolloutChange, item_names
from edgegpu_cloud.rollouts.rules import BoxApplied, BoxFailed, BoxRejected, BoxSkipped
from edgegpu_sync.messages.spec import SINGLE_ITEMS, AnyItem, AppLimits, Item, Spec, item_name
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.messages.uplink import ItemReport, ItemState

Json = dict[str, Any]
Items = Mapping[str, Json | None]
"""Items of a document by name, as they are stored; None: it is not in the document."""

TAKEN_OVER = phrase("somebody else has changed it since")
_UNCHANGED = frozenset({ItemState.REJECTED, ItemState.UNSUPPORTED, ItemState.ELSEWHERE})
"""The states of an item that the box has not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxBefore:
    """What a box had before a rollout changed it, of the items that the rollout sets.

    `items` stood in its document, `order` are all app limits in their order there. `present` is what the box itself
    reported of items that nobody had requested; None: it is not known. `bad` are items that the box had not applied.
    """

    rev: int
    items: Items
    order: Sequence[str]
    present: Items
    bad: Sequence[str]
    lost: Sequence[str] = ()
    """Items that the box did not get back, because nobody knows what they were."""


_BEFORE = TypeAdapter(BoxBefore)


def before_json(before: BoxBefore) -> Json:
    """Return what a box had as it is stored."""
    found: Json = _BEFORE.dump_python(before, mode="json")
    return found


def read_before(value: Json | None) -> BoxBefore:
    """Read what a box had; ValueError where nothing was stored."""
    return _BEFORE.validate_python(value)


def items_of(spec: Spec, names: Collection[str]) -> dict[str, Json | None]:
    """Return items of a document as they are stored."""
    found = desired_items(spec)
    return {name: found[name].model_dump(mode="json") if name in found else None for name in names}


def stands_already(before: BoxBefore, after: Spec) -> bool:
    """Whether a box has applied exactly this already; `after` is the document as it would become."""
    wanted = items_of(after, list(before.items))
    same = all(item is not None and _plain(item) == _plain(wanted[name] or {}) for name, item in before.items.items())
    return same and not before.bad


def _plain(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in {"rev", "retry"}}


def outcome(
    wrote: Items, held: Spec, told: Mapping[str, ItemReport], good: Collection[ItemState]
) -> BoxApplied | BoxRejected | BoxFailed | BoxSkipped | None:
    """Return what became of the items that a rollout wrote; None while the box is at it.

    BoxSkipped: the items are others by now.
    """
    names = [name for name, item in wrote.items() if item is not None]
    if items_of(held, list(wrote)) != dict(wrote):
        return BoxSkipped(TAKEN_OVER)
    reports = current_reports(held, told, names)
    if any(report is None or report.state is ItemState.OPEN for report in reports.values()):
        return None
    bad = {name: report for name, report in reports.items() if report is not None and report.state not in good}
    if not bad:
        return BoxApplied(_words(reports))
    failed = any(report.state not in _UNCHANGED for report in bad.values())
    return BoxFailed(_words(bad)) if failed else BoxRejected(_words(bad))


def _words(reports: Mapping[str, ItemReport | None]) -> str:
    """Return reports in one line: the state, the code and the text of each; the names where there are several."""
    lines = []
    for name, report in reports.items():
        if report is not None:
            words = reported(report.state.value, report.code, report_words(report))
            lines.append(phrase("%(item)s %(words)s", item=name, words=words) if len(reports) > 1 else words)
    return joined(lines)


# what a box itself reports to have, where nobody has requested it


def present_settings(inventory: Inventory | None, names: Collection[str]) -> dict[str, Json | None]:
    """Return settings of sharing as a box reports them; None where sharing is not installed, or nothing is known."""
    if inventory is None or not inventory.sharing:
        return dict.fromkeys(names)
    values: dict[str, Json] = {
        "isolation": {"mode": inventory.mode},
        "policy": {"policy": inventory.policy},
        "exclusions": {"cards": [card.label for card in inventory.cards if card.excluded]},
        "unit_size": {"mib": inventory.unit_mib},
    }
    return {name: {"rev": 0, **values[name]} for name in names}


def before_of(held: Spec, rev: int, told: Mapping[str, ItemReport], change: RolloutChange, present: Items) -> BoxBefore:
    """Return what a box has of the items that a change sets."""
    names = item_names(change)
    items = items_of(held, names)
    reports = current_reports(held, told, names)
    bad = [
        name
        for name, report in reports.items()
        if items[name] is not None and (report is None or report.state is not ItemState.APPLIED)
    ]
    order = [item_name(item) for item in held.app_limits]
    return BoxBefore(rev=rev, items=items, order=order, present=present, bad=bad)


# the way back


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnPlan:
    """The items to write for a box's return; `temporary` ones leave the document when the box has applied them.

    `lost` are items that leave it at once, though the box may keep what the rollout has set: nobody knows what it had.
    """

    items: Items
    temporary: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def plan_return(before: BoxBefore, wrote: Items, held: Spec, told: Mapping[str, ItemReport]) -> ReturnPlan | None:
    """Return how a box gets back what it had; None where somebody else has changed the items since.

    An item that was requested before is requested again as it was. One that nobody had requested is set to what the
    box reported then, and leaves the document afterwards; where the box has refused the rollout's, it leaves it now.
    """
    if items_of(held, list(wrote)) != dict(wrote):
        return None
    reports = current_reports(held, told, list(wrote))
    items: dict[str, Json | None] = {}
    temporary, lost = [], []
    for name, mine in wrote.items():
        items[name] = before.items[name]
        if before.items[name] is not None or mine is None or _is_untouched(reports[name]):
            continue
        there = before.present.get(name)
        if there is None:
            lost.append(name)
        elif _plain(there).items() <= _plain(mine).items():
            continue  # the box had just this: nothing has to be set back
        else:
            items[name] = {**mine, **there}
            temporary.append(name)
    return ReturnPlan(items=items, temporary=tuple(temporary), lost=tuple(lost))


def _is_untouched(report: ItemReport | None) -> bool:
    """Whether a box has surely not kept anything of an item."""
    if report is None:
        return False
    return report.state in _UNCHANGED or (report.state is ItemState.FAILED and bool(report.restored))


def with_items(spec: Spec, items: Items, order: Sequence[str]) -> Spec:
    """Return a document with these items as they are stored, and its app limits in this order; None takes one out."""
    changes: dict[str, object] = {
        name: _read(SINGLE_ITEMS[name], item) for name, item in items.items() if name in SINGLE_ITEMS
    }
    limits = [one for one in spec.app_limits if item_name(one) not in items]
    limits += [
        AppLimits.model_validate_json(json.dumps(item))
        for name, item in items.items()
        if name not in SINGLE_ITEMS and item is not None
    ]
    place = {name: at for at, name in enumerate(order)}
    limits.sort(key=lambda one: place.get(item_name(one), len(place)))
    return spec.model_copy(update={**changes, "app_limits": tuple(limits)})


def _read(model: type[AnyItem], item: Json | None) -> Item | None:
    return None if item is None else model.model_validate_json(json.dumps(item))
