"""What a person sees of boxes and commands: values made of the store's records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from edgegpu_cloud.store import Box, BoxState, Heard, Latest, Orphan, StoredCommand, Transaction
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.spec import Spec
from edgegpu_sync.states import State
from edgegpu_sync.topics import Kind
from edgegpu_sync.up import ItemReport

Json = dict[str, Any]

_ITEMS = TypeAdapter(dict[str, ItemReport])
_KINDS = (Kind.STATUS, Kind.REPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxView:
    """A box: who it is, whether it is there, how it stands against what is desired.

    Times are seconds since 1970. `restored`: it was found ahead of this store, which came from a backup; nothing is
    asked of it until a person confirms. Versions, capabilities, cluster and items are empty before its first word.
    """

    device: DeviceId
    name: str
    labels: Mapping[str, str]
    host: str
    state: BoxState
    enrolment: int
    online: bool
    restored: bool
    seen_at_s: float
    enrolled_at_s: float
    rev: int
    observed_rev: int
    applied_rev: int
    open_commands: int
    versions: Mapping[str, str]
    capabilities: Sequence[str]
    cluster: str
    items: Mapping[str, ItemReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView:
    """A command: what was asked, where it stands, what was heard of it. `state` is None before its box's first word."""

    id: CommandId
    device: DeviceId
    box: str
    op: OpName
    args: Json
    by: str
    at_s: float
    due_at_s: float
    state: State | None
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
    history: Sequence[Heard] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """All that is known of one box: besides its view its document, its last messages, and ends of unknown commands."""

    box: BoxView
    spec: Spec
    latest: Mapping[Kind, Latest]
    orphans: Sequence[Orphan]


def box_views(tx: Transaction, boxes: Sequence[Box]) -> list[BoxView]:
    """Make views of boxes."""
    latest = tx.boxes.latest([box.device for box in boxes], _KINDS)
    open_ = tx.commands.open_count()
    return [
        _box_view(
            box,
            birth=_body(latest.get((box.device, Kind.STATUS))),
            reported=_body(latest.get((box.device, Kind.REPORTED))),
            open_commands=open_.get(box.device, 0),
        )
        for box in boxes
    ]


def _body(latest: Latest | None) -> Json:
    return latest.body if latest is not None else {}


def _box_view(box: Box, *, birth: Json, reported: Json, open_commands: int) -> BoxView:
    return BoxView(
        device=box.device,
        name=box.name,
        labels=box.labels,
        host=box.host,
        state=box.state,
        enrolment=box.book.enrolment,
        online=box.online,
        restored=box.book.restored,
        seen_at_s=box.seen_at_s,
        enrolled_at_s=box.enrolled_at_s,
        rev=box.book.rev,
        observed_rev=box.observed_rev,
        applied_rev=box.applied_rev,
        open_commands=open_commands,
        versions=birth.get("versions", {}),
        capabilities=birth.get("capabilities", ()),
        cluster=reported.get("cluster", ""),
        items=_ITEMS.validate_python(reported.get("items", {}), strict=False),
    )


def command_view(command: StoredCommand, *, box: str, now_s: float, history: Sequence[Heard] = ()) -> CommandView:
    """Make the view of a command; `box` is its box's name."""
    one = command.tracked
    return CommandView(
        id=one.id,
        device=command.device,
        box=box,
        op=one.op,
        args=one.args,
        by=command.by,
        at_s=command.at_s,
        due_at_s=one.due_at_s,
        state=one.state,
        code=one.code,
        text=one.text,
        data=command.data,
        attempts=command.attempts,
        seq=one.seq,
        tries=one.tries,
        ended=one.ended,
        ended_at_s=command.ended_at_s,
        cancelled=command.cancelled,
        overdue=one.overdue(now_s),
        history=history,
    )
