"""The reading of the journal's tables into one value."""

import json
import sqlite3
from dataclasses import replace

from edgegpu_agent.journal import codec
from edgegpu_agent.journal.contents import JournalContents
from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.spec import asked
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import KeptMessage, Outbox, OutboxSizes
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.rules.settle import DesiredState
from edgegpu_sync.states import CommandState


def one(link: sqlite3.Connection, name: str) -> str | None:
    """Return the value of a name in the table `one`; None without it."""
    row = link.execute("SELECT value FROM one WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def put(link: sqlite3.Connection, name: str, value: str) -> None:
    """Write the value of a name into the table `one`."""
    link.execute("INSERT OR REPLACE INTO one VALUES (?, ?)", (name, value))


def load(link: sqlite3.Connection, limits: OutboxSizes) -> JournalContents | None:
    """Return the contents of the journal; None where nothing was written yet."""
    values = {str(name): str(value) for name, value in link.execute("SELECT name, value FROM one")}
    if "gate" not in values:
        return None
    records = _records(link)
    held = JournalContents(
        replay_guard=codec.guard_of(values["gate"]),
        ring=codec.ring_of(values["ring"]),
        records=records,
        outbox=_outbox(link, limits, records, values),
        settling=codec.asked_of(values["settling"]),
        transactions=tuple(json.loads(values.get("transactions", "[]"))),  # versions before this one have none
        server_time=int(values["server_time"]),
        heard=codec.heard_of(values["heard"]),
        refused=codec.counts_of(values["refused"]),
    )
    return _with_board(held, link, values)


def _with_board(held: JournalContents, link: sqlite3.Connection, values: dict[str, str]) -> JournalContents:
    spec = json.loads(values["spec"])
    rev, digest, applied = json.loads(values["seen"])
    tries = {str(name): codec.try_of(text) for name, text in link.execute("SELECT name, value FROM tries")}
    desired_state = DesiredState(
        seen=SeenRevision(rev, digest), asked=asked(spec, rev), tries=tries, applied_rev=applied
    )
    return replace(held, desired_state=desired_state, spec=spec)


def _records(link: sqlite3.Connection) -> dict[CommandId, CommandRecord]:
    rows = link.execute("SELECT id, value, args FROM commands WHERE live = 1 ORDER BY seq")
    return {record.id: record for record in (codec.record_of(*row) for row in rows)}


def _outbox(
    link: sqlite3.Connection, limits: OutboxSizes, records: dict[CommandId, CommandRecord], values: dict[str, str]
) -> Outbox:
    parts: dict[str, list[str]] = {"result": [], "refusal": []}
    kept: dict[str, list[KeptMessage]] = {"event": [], "metrics": []}
    for part, key, size, alarm in link.execute("SELECT part, key, length(body), alarm FROM outbox ORDER BY place"):
        if part in parts:
            parts[part].append(key)
        else:
            kept[part].append(KeptMessage(codec.stamp_of(key), size, bool(alarm)))
    dropped = codec.counts_of(values["dropped"])
    return Outbox(
        limits=limits,
        open=frozenset(
            one.id for one in records.values() if not one.state.terminal and one.state != CommandState.RECEIVED
        ),
        results=tuple(command_id(key) for key in parts["result"]),
        refusals=tuple(command_id(key) for key in parts["refusal"]),
        events=tuple(kept["event"]),
        metrics=tuple(kept["metrics"]),
        dropped_events=dropped["events"],
        dropped_metrics=dropped["metrics"],
    )
