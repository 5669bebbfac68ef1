"""Conversion between rows and dataclasses."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from edgegpu_base.records import values_reader
from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, StoredCommand, partition_of
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy import RowMapping

T = TypeVar("T", bound="DataclassInstance")
Values = dict[str, Any]


def record_of(record: type[T], row: "RowMapping | Mapping[str, Any]", **converted: object) -> T:
    """Read a record whose fields are columns of the row; `converted` are those that need more than the row has."""
    return record(**{name: row[name] for name in _names(record) if name not in converted}, **converted)


def values_of(record: "DataclassInstance") -> Values:
    """Return the fields of a record by name, as they are: `asdict` would copy each value, however deep."""
    names, values = _reader(type(record))
    return dict(zip(names, values(record), strict=True))


@cache
def _reader(record: "type[DataclassInstance]") -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]]]:
    names = _names(record)
    return names, values_reader(names)


@cache
def _names(record: "type[DataclassInstance]") -> tuple[str, ...]:
    return tuple(one.name for one in fields(record))


def _epoch(count: int | None, nonce: str | None) -> Epoch | None:
    return None if count is None or nonce is None else Epoch(count, nonce)


def box_of(row: "RowMapping") -> BoxRecord:
    """Read a row of `boxes`; the time of the box's birth is not in the store."""
    epoch = _epoch(row["epoch_count"], row["epoch_nonce"])
    sequence = record_of(CommandSequence, row, epoch=epoch, born_at_s=None)
    return record_of(BoxRecord, row, sequence=sequence, state=BoxState(row["state"]))


def box_values(box: BoxRecord) -> Values:
    """Write a row of `boxes`."""
    own = {name: getattr(box, name) for name in ("name", "public", "host", "added_at_s", "enrolled_at_s")}
    who = {"partition": partition_of(box.device), "labels": dict(box.labels), "state": box.state.value}
    return box_state_values(box) | own | who


_STATE = ("device", "online", "seen_at_s", "spec_rev", "told_rev", "observed_rev", "applied_rev", "look_at_s", "looks")
_NUMBERS = ("enrolment", "instance", "next_seq", "rev", "digest", "restored", "key_set")
_state_of, _numbers_of = values_reader(_STATE), values_reader(_NUMBERS)


def box_state_values(box: BoxRecord) -> Values:
    """Write what a controller and a request change in a row of `boxes`."""
    sequence, epoch = box.sequence, box.sequence.epoch
    values = zip((*_STATE, *_NUMBERS), (*_state_of(box), *_numbers_of(sequence)), strict=True)
    return dict(values) | {
        "touched": box.touched,
        "epoch_count": epoch.count if epoch else None,
        "epoch_nonce": epoch.nonce if epoch else None,
    }


def command_of(row: "RowMapping") -> StoredCommand:
    """Read a row of `commands`."""
    state = CommandState(row["state"]) if row["state"] else None
    signed_for = _epoch(row["signed_count"], row["signed_nonce"])
    tracked = record_of(TrackedCommand, row, state=state, signed_for=signed_for, stamp=_stamp(row))
    return record_of(StoredCommand, row, tracked=tracked)


def _stamp(row: "RowMapping") -> Stamp | None:
    epoch = _epoch(row["stamp_count"], row["stamp_nonce"])
    if epoch is None:
        return None
    return Stamp(enrolment=row["stamp_enrolment"], epoch=epoch, n=row["stamp_n"])


def command_values(command: StoredCommand) -> Values:
    """Write what can change in a row of `commands`."""
    one = command.tracked
    own = {name: getattr(command, name) for name in ("cancelled", "data", "attempts", "ended_at_s", "sent_at_s")}
    tracked = {name: getattr(one, name) for name in ("due_at_s", "seq", "code", "text", "quiet_since_s", "tries")}
    return {
        **own,
        **tracked,
        "state": one.state.value if one.state else None,
        "signed_count": one.signed_for.count if one.signed_for else None,
        "signed_nonce": one.signed_for.nonce if one.signed_for else None,
        "stamp_enrolment": one.stamp.enrolment if one.stamp else None,
        "stamp_count": one.stamp.epoch.count if one.stamp else None,
        "stamp_nonce": one.stamp.epoch.nonce if one.stamp else None,
        "stamp_n": one.stamp.n if one.stamp else None,
        "ended": one.ended,
        "next_at_s": None if one.ended else command.next_at_s,
    }


def new_command_values(command: StoredCommand) -> Values:
    """Write a whole row of `commands`."""
    who = {"id": command.id, "device": command.device, "by": command.by, "at_s": command.at_s}
    return who | {"op": command.tracked.op, "args": command.tracked.args} | command_values(command)


def latest_of(row: "RowMapping") -> Latest:
    """Read a row of `latest`."""
    stamp = Stamp(enrolment=row["enrolment"], epoch=Epoch(row["count"], row["nonce"]), n=row["n"])
    return Latest(
        device=DeviceId(row["device"]), kind=TopicKind(row["kind"]), stamp=stamp, at_s=row["at_s"], body=row["body"]
    )


def latest_values(latest: Latest) -> Values:
    """Write a row of `latest`."""
    stamp = latest.stamp
    values = {"device": latest.device, "kind": latest.kind.value, "at_s": latest.at_s, "body": latest.body}
    return values | values_of(stamp.epoch) | {"enrolment": stamp.enrolment, "n": stamp.n}
