"""Conversion between rows and dataclasses."""

from typing import Any

from sqlalchemy import RowMapping

from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, StoredCommand
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

Values = dict[str, Any]
_PLAIN = [
    "device",
    "name",
    "public",
    "host",
    "added_at_s",
    "enrolled_at_s",
    "online",
    "seen_at_s",
    "spec_rev",
    "told_rev",
    "observed_rev",
    "applied_rev",
    "look_at_s",
    "looks",
    "touched",
]


def _epoch(count: int | None, nonce: str | None) -> Epoch | None:
    return None if count is None or nonce is None else Epoch(count, nonce)


def box_of(row: RowMapping) -> BoxRecord:
    """Read a row of `boxes`; the time of the box's birth is not in the store."""
    book = CommandSequence(
        enrolment=row["enrolment"],
        instance=row["instance"],
        epoch=_epoch(row["epoch_count"], row["epoch_nonce"]),
        next_seq=row["next_seq"],
        rev=row["rev"],
        digest=row["digest"],
        restored=row["restored"],
        key_set=row["key_set"],
    )
    plain = {name: row[name] for name in _PLAIN}
    return BoxRecord(book=book, state=BoxState(row["state"]), labels=dict(row["labels"]), **plain)


def box_values(box: BoxRecord) -> Values:
    """Write a row of `boxes`."""
    book = box.book
    return {name: getattr(box, name) for name in _PLAIN} | {
        "labels": dict(box.labels),
        "state": box.state.value,
        "enrolment": book.enrolment,
        "instance": book.instance,
        "epoch_count": book.epoch.count if book.epoch else None,
        "epoch_nonce": book.epoch.nonce if book.epoch else None,
        "next_seq": book.next_seq,
        "rev": book.rev,
        "digest": book.digest,
        "restored": book.restored,
        "key_set": book.key_set,
    }


def command_of(row: RowMapping) -> StoredCommand:
    """Read a row of `commands`."""
    tracked = TrackedCommand(
        id=CommandId(row["id"]),
        op=OpName(row["op"]),
        args=row["args"],
        due_at_s=row["due_at_s"],
        seq=row["seq"],
        state=CommandState(row["state"]) if row["state"] else None,
        code=row["code"],
        text=row["text"],
        signed_for=_epoch(row["signed_count"], row["signed_nonce"]),
        quiet_since_s=row["quiet_since_s"],
        tries=row["tries"],
        stamp=_stamp(row),
    )
    return StoredCommand(
        device=DeviceId(row["device"]),
        tracked=tracked,
        by=row["by"],
        at_s=row["at_s"],
        cancelled=row["cancelled"],
        data=row["data"],
        attempts=row["attempts"],
        ended_at_s=row["ended_at_s"],
        next_at_s=row["next_at_s"],
        number=row["number"],
    )


def _stamp(row: RowMapping) -> Stamp | None:
    epoch = _epoch(row["stamp_count"], row["stamp_nonce"])
    if epoch is None:
        return None
    return Stamp(enrolment=row["stamp_enrolment"], epoch=epoch, n=row["stamp_n"])


def command_values(command: StoredCommand) -> Values:
    """Write what can change in a row of `commands`."""
    one = command.tracked
    return {
        "due_at_s": one.due_at_s,
        "cancelled": command.cancelled,
        "seq": one.seq,
        "state": one.state.value if one.state else None,
        "code": one.code,
        "text": one.text,
        "data": command.data,
        "attempts": command.attempts,
        "signed_count": one.signed_for.count if one.signed_for else None,
        "signed_nonce": one.signed_for.nonce if one.signed_for else None,
        "quiet_since_s": one.quiet_since_s,
        "tries": one.tries,
        "stamp_enrolment": one.stamp.enrolment if one.stamp else None,
        "stamp_count": one.stamp.epoch.count if one.stamp else None,
        "stamp_nonce": one.stamp.epoch.nonce if one.stamp else None,
        "stamp_n": one.stamp.n if one.stamp else None,
        "ended": one.ended,
        "ended_at_s": command.ended_at_s,
        "next_at_s": None if one.ended else command.next_at_s,
    }


def new_command_values(command: StoredCommand) -> Values:
    """Write a whole row of `commands`."""
    who = {"id": command.id, "device": command.device, "by": command.by, "at_s": command.at_s}
    return who | {"op": command.tracked.op, "args": command.tracked.args} | command_values(command)


def latest_of(row: RowMapping) -> Latest:
    """Read a row of `latest`."""
    stamp = Stamp(enrolment=row["enrolment"], epoch=Epoch(row["count"], row["nonce"]), n=row["n"])
    return Latest(
        device=DeviceId(row["device"]), kind=TopicKind(row["kind"]), stamp=stamp, at_s=row["at_s"], body=row["body"]
    )


def latest_values(latest: Latest) -> Values:
    """Write a row of `latest`."""
    return {
        "device": latest.device,
        "kind": latest.kind.value,
        **stamp_values(latest.stamp),
        "at_s": latest.at_s,
        "body": latest.body,
    }


def stamp_values(stamp: Stamp) -> Values:
    """Write a stamp in columns of its own."""
    epoch = stamp.epoch
    return {"enrolment": stamp.enrolment, "count": epoch.count, "nonce": epoch.nonce, "n": stamp.n}
