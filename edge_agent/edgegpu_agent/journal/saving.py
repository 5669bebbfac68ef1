"""The writing of changes between two values of the journal's contents; the caller holds the transaction."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgegpu_agent.journal import codec
from edgegpu_agent.journal.contents import HistoryEntry, JournalContents
from edgegpu_agent.journal.loading import put
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import KeptMessage, Outbox
from edgegpu_sync.wire import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentDiff:
    """The change from one value of the contents to the next; without `before` all of `after` is written."""

    before: JournalContents | None
    after: JournalContents
    bodies: Mapping[CommandId | Stamp, bytes] = field(default_factory=dict)
    notes: Mapping[str, Json | None] = field(default_factory=dict)
    told: Sequence[HistoryEntry] = ()
    at_s: int = 0
    most_told: int = 0


def write(link: sqlite3.Connection, change: ContentDiff) -> None:
    """Write a change of the contents."""
    _write_ones(link, change.before, change.after)
    _write_records(link, change)
    _write_tries(link, change)
    _write_outbox(link, change)
    for name, note in change.notes.items():
        if note is None:
            link.execute("DELETE FROM notes WHERE name = ?", (name,))
        else:
            link.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, codec.dumps(note)))
    _write_history(link, change)


def _write_ones(link: sqlite3.Connection, before: JournalContents | None, after: JournalContents) -> None:
    for name, (value_of, text_of) in _ONES.items():
        value = value_of(after)
        if before is None or value_of(before) != value:
            put(link, name, text_of(value))


_ONES: dict[str, tuple[Callable[[JournalContents], object], Callable[[Any], str]]] = {
    "gate": (lambda held: held.replay_guard, codec.guard_text),
    "ring": (lambda held: held.ring, codec.ring_text),
    "spec": (lambda held: held.spec, codec.dumps),
    "seen": (
        lambda held: [held.desired_state.seen.rev, held.desired_state.seen.digest, held.desired_state.applied_rev],
        codec.dumps,
    ),
    "settling": (lambda held: held.settling, codec.asked_text),
    "transactions": (lambda held: held.transactions, codec.dumps),
    "server_time": (lambda held: held.server_time, str),
    "heard": (lambda held: held.heard, codec.heard_text),
    "refused": (lambda held: held.refused, lambda value: codec.dumps(dict(value))),
    "dropped": (
        lambda held: {"events": held.outbox.dropped_events, "metrics": held.outbox.dropped_metrics},
        codec.dumps,
    ),
}
"""The rows of the table `one`: how each is read from the contents, and how it is written."""


def _write_records(link: sqlite3.Connection, change: ContentDiff) -> None:
    before = {} if change.before is None else change.before.records
    after = change.after.records
    for id_, record in after.items():
        if before.get(id_) is not record:
            _write_record(link, record, live=True)
    for id_ in before.keys() - after.keys():
        _write_record(link, before[id_], live=False)
    forgotten = change.after.replay_guard.forgotten
    if change.before is not None and forgotten > change.before.replay_guard.forgotten:
        link.execute("DELETE FROM commands WHERE live = 0 AND seq <= ?", (forgotten,))


def _write_record(link: sqlite3.Connection, record: CommandRecord, *, live: bool) -> None:
    """Write a command, without its arguments where only the id is still remembered."""
    values = (record.id, record.seq, int(live), codec.record_text(record), codec.dumps(record.args if live else {}))
    link.execute("INSERT OR REPLACE INTO commands VALUES (?, ?, ?, ?, ?)", values)


def _write_tries(link: sqlite3.Connection, change: ContentDiff) -> None:
    before = {} if change.before is None else change.before.desired_state.tries
    after = change.after.desired_state.tries
    for name, tried in after.items():
        if before.get(name) is not tried:
            link.execute("INSERT OR REPLACE INTO tries VALUES (?, ?)", (name, codec.try_text(tried)))
    for name in before.keys() - after.keys():
        link.execute("DELETE FROM tries WHERE name = ?", (name,))


def _write_outbox(link: sqlite3.Connection, change: ContentDiff) -> None:
    before = Outbox() if change.before is None else change.before.outbox
    after = change.after.outbox
    if before is after:
        return
    for part, old, new in (
        ("result", before.results, after.results),
        ("refusal", before.refusals, after.refusals),
        ("event", before.events, after.events),
        ("metrics", before.metrics, after.metrics),
    ):
        if old is not new:
            _write_part(link, part, change.bodies, old=_by_key(old), new=_by_key(new))


_Piece = CommandId | KeptMessage


def _by_key(pieces: Sequence[_Piece]) -> dict[str, _Piece]:
    return {codec.stamp_text(one.stamp) if isinstance(one, KeptMessage) else one: one for one in pieces}


def _write_part(
    link: sqlite3.Connection,
    part: str,
    bodies: Mapping[CommandId | Stamp, bytes],
    *,
    old: Mapping[str, _Piece],
    new: Mapping[str, _Piece],
) -> None:
    for key in old.keys() - new.keys():
        link.execute("DELETE FROM outbox WHERE part = ? AND key = ?", (part, key))
    for key, piece in new.items():
        if key not in old:
            body = bodies.get(piece.stamp if isinstance(piece, KeptMessage) else piece, b"")
            alarm = int(isinstance(piece, KeptMessage) and piece.alarm)
            values = (part, key, alarm, body)
            link.execute("INSERT INTO outbox (part, key, alarm, body) VALUES (?, ?, ?, ?)", values)


_TELL = "INSERT INTO history (at_s, kind, about, state, text, by) VALUES (?, ?, ?, ?, ?, ?)"


def _write_history(link: sqlite3.Connection, change: ContentDiff) -> None:
    for entry in change.told:
        values = (entry.at_s or change.at_s, entry.kind, entry.about, entry.state, entry.text, entry.by)
        done = link.execute(_TELL, values)
        link.execute("DELETE FROM history WHERE n <= ?", ((done.lastrowid or 0) - change.most_told,))
