"""Views of boxes and commands for people, made of the store's records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.preview.capacity import BoxCapacity, capacity_of
from edgegpu_cloud.fleet.reports import CardReports, card_reports
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.records import (
    UNINSTALLED,
    BoxRecord,
    BoxState,
    CommandHistoryLine,
    Latest,
    Orphan,
    StoredCommand,
)
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.messages.spec import AnyItem, Spec
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import TopicKind

Json = dict[str, Any]

_ITEMS = TypeAdapter(dict[str, ItemReport])
KINDS_OF_VIEW = (TopicKind.STATUS, TopicKind.REPORTED, TopicKind.INVENTORY, TopicKind.ALLOC, TopicKind.HEALTH)
_WAITING = frozenset({ItemState.OPEN, ItemState.PENDING})
_PROBLEMS = frozenset({ItemState.REJECTED, ItemState.FAILED, ItemState.UNSUPPORTED})

PRESENT_S = 900.0
"""A box reports every ten minutes: one that was not heard for this long is not there, whatever its link says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxView:
    """A box: its identity, whether it is online, and how far it has applied what is desired.

    Times are seconds since 1970. `online`: its link is up, and it was heard within `PRESENT_S`. `left`: why its link
    ended, as its goodbye has it (stop, upgrade, uninstall, identity), or `lost` where there was none. `health` is its
    last report: ok, warn or bad. `waiting` counts changes and commands that it has not done yet, `problems` the changes
    that it refused or failed at. `cluster` is the one that counts, `claim` one that it reports and that does not.
    `holder`: it settles the app limits of its cluster. `restored`: it was found ahead of
    this store, which came from a backup; nothing is asked of it until a person confirms. Versions, capabilities,
    cluster and items are empty before its first message.
    """

    device: DeviceId
    name: str
    labels: Mapping[str, str]
    host: str
    state: BoxState
    enrolment: int
    online: bool
    left: str
    restored: bool
    seen_at_s: float
    enrolled_at_s: float
    rev: int
    observed_rev: int
    applied_rev: int
    open_commands: int
    waiting: int
    problems: int
    health: str
    capacity: BoxCapacity | None
    versions: Mapping[str, str]
    capabilities: Sequence[str]
    cluster: str
    claim: str = ""
    holder: bool
    items: Mapping[str, ItemReport]

    @property
    def is_asked(self) -> bool:
        """Whether anything can be asked of the box: it is not revoked, and edgegpu was not taken off it."""
        return self.state is BoxState.ENROLLED and self.left != UNINSTALLED


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView:
    """A command: its request, its state, its history. `state` is None before its box's first result."""

    id: CommandId
    device: DeviceId
    box: str
    op: OpName
    args: Json
    by: str
    at_s: float
    due_at_s: float
    state: CommandState | None
    code: str
    text: str
    data: Json | None
    attempts: int
    seq: int | None
    tries: int
    ended: bool
    ended_at_s: float | None
    cancelled: bool
    overdue: bool
    sent_at_s: float | None = None
    history: Sequence[CommandHistoryLine] = ()


@dataclass(frozen=True, slots=True)
class CommandTimeline:
    """A command with its history; `next_try_s`: when it is sent next, 0 at once, None where its box has to come first.

    Seconds since 1970.
    """

    command: CommandView
    next_try_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDetails:
    """All that is known of one box: its view, its document, its last messages, and ends of unknown commands."""

    box: BoxView
    spec: Spec
    latest: Mapping[TopicKind, Latest]
    orphans: Sequence[Orphan]


def box_views(tx: Transaction, boxes: Sequence[BoxRecord], *, now_s: float) -> list[BoxView]:
    """Return views of boxes as they are now."""
    devices = [box.device for box in boxes]
    latest = tx.boxes.latest(devices, KINDS_OF_VIEW)
    open_, summaries = tx.commands.open_count(devices), tx.summaries.get(devices)
    return [
        _box_view(
            box,
            summaries[box.device],
            {kind: one for kind in KINDS_OF_VIEW if (one := latest.get((box.device, kind))) is not None},
            open_commands=open_.get(box.device, 0),
            now_s=now_s,
        )
        for box in boxes
    ]


def reports_to_preview(details: BoxDetails) -> CardReports:
    """Return the reports of a box by which a change is previewed.

    Raises:
        CloudError: it has not reported its cards yet.
    """
    reports = card_reports(details.latest)
    if reports is None:
        text = phrase("cannot preview: %(box)s has not told yet what cards it has", box=details.box.name)
        remedy = phrase("wait until it is connected, or ask it: edgegpu-cloud command BOX inventory.refresh")
        raise CloudError(text, remedy=remedy)
    return reports


def is_present(box: BoxRecord, *, now_s: float) -> bool:
    """Whether a box is online: its link is up, and it was heard of late."""
    return box.online and now_s - box.seen_at_s < PRESENT_S


def _body(latest: Latest | None) -> Json:
    return latest.body if latest is not None else {}


def left_of(birth: Json) -> str:
    """Return why a box has gone, by its last birth, goodbye or will."""
    return {"bye": str(birth.get("why", "")), "will": "lost"}.get(str(birth.get("state", "")), "")


def is_dormant(item: ItemReport) -> bool:
    """Whether an item waits for GPU sharing to be installed: the box tries it again then, and nobody has to act."""
    return item.state is ItemState.REJECTED and item.code == ResultCode.NOT_INSTALLED


def is_problem(item: ItemReport) -> bool:
    """Whether a person has to act on an item: it was refused, or could not be applied."""
    return item.state in _PROBLEMS and not is_dormant(item)


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """How many items of a box's reported state are not settled, and at how many it failed or refused."""

    open: int
    problems: int


def items_of(reported: Json) -> ItemCounts:
    """Count the items of a reported state."""
    return _counted(reported_items(reported))


def reported_items(reported: Json) -> Mapping[str, ItemReport]:
    """Return the reports on items in a reported state, by their names."""
    found: Mapping[str, ItemReport] = _ITEMS.validate_python(reported.get("items", {}), strict=False)
    return found


def current_report(report: ItemReport | None, item: AnyItem | None) -> ItemReport | None:
    """Return a box's report on an item if it is of the request that is desired now; None if it is of an older one."""
    if item is None or report is None or (report.rev, report.retry) < (item.rev, item.retry):
        return None
    return report


def current_reports(spec: Spec, told: Mapping[str, ItemReport], names: Iterable[str]) -> dict[str, ItemReport | None]:
    """Return the reports on items by name, each as `current_report` does; None too for an item that nobody desires."""
    desired = desired_items(spec)
    return {name: current_report(told.get(name), desired.get(name)) for name in names}


def _counted(items: Mapping[str, ItemReport]) -> ItemCounts:
    return ItemCounts(sum(item.state in _WAITING for item in items.values()), sum(map(is_problem, items.values())))


def waiting_of(box: BoxRecord, *, open_items: int, open_commands: int) -> int:
    """Return how many requests a box has not done yet; one that it has not read counts once, whatever is in it."""
    unread = int(box.observed_rev < box.sequence.rev)
    return max(open_items, unread) + open_commands


def _box_view(
    box: BoxRecord, summary: BoxSummary, latest: Mapping[TopicKind, Latest], *, open_commands: int, now_s: float
) -> BoxView:
    birth, reported = _body(latest.get(TopicKind.STATUS)), _body(latest.get(TopicKind.REPORTED))
    items = reported_items(reported)
    counts = _counted(items)
    online = is_present(box, now_s=now_s)
    return record_of(
        BoxView,
        values_of(box) | values_of(box.sequence),
        online=online,
        left="" if online else left_of(birth),
        open_commands=open_commands,
        waiting=waiting_of(box, open_items=counts.open, open_commands=open_commands),
        problems=counts.problems,
        health=str(_body(latest.get(TopicKind.HEALTH)).get("state", "")),
        capacity=capacity_of(latest),
        versions=birth.get("versions", {}),
        capabilities=birth.get("capabilities", ()),
        cluster=summary.cluster,
        claim=summary.claim,
        holder=summary.holder,
        items=items,
    )


def command_view(
    command: StoredCommand, *, box: str, now_s: float, history: Sequence[CommandHistoryLine] = ()
) -> CommandView:
    """Return the view of a command; `box` is its box's name."""
    one = command.tracked
    values = values_of(command) | values_of(one) | {"text": _ENDS.get(one.text, one.text)}
    steps = [replace(step, text=_ENDS.get(step.text, step.text)) for step in history]
    return record_of(CommandView, values, box=box, ended=one.ended, overdue=one.overdue(now_s), history=steps)


REVOKED_MEANWHILE = phrase("the box was revoked: it may have been done")
SET_ASIDE_MEANWHILE = phrase("the box was set aside: it may have been done")
"""The texts with which the controller ends commands of a box itself; all others are the box's words."""

_ENDS = {str(one): one for one in (REVOKED_MEANWHILE, SET_ASIDE_MEANWHILE)}
