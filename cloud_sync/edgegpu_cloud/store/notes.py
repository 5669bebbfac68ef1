"""Events, alarms and the audit; the chain of key sets; numbers of the whole store."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)

from edgegpu_cloud.phrases import phrase, phrase_json
from edgegpu_cloud.store.controllers.leases import ALL, of_partitions
from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.engine import upsert
from edgegpu_cloud.store.labels import in_scope
from edgegpu_cloud.store.records import Alarm, AuditEntry, AuditFilter, BoxEvent, Json, LabelTerm, NumberedEvent
from edgegpu_cloud.store.schema import AlarmRow, AuditRow, EventRow, KeySetRow, MetaRow, table
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.messages.telemetry import TRANSACTION

_EVENTS, _ALARMS, _AUDIT, _KEYS = table(EventRow), table(AlarmRow), table(AuditRow), table(KeySetRow)
_META = table(MetaRow)

KEPT_EVENTS = 10_000
"""Events of one box that are kept."""

MOST_ALARMS = 50
"""Alarms of one box that may be unseen at one time."""

MANY_ALARMS, SET_ASIDE, FLOOD, BLOCKED = "MANY_ALARMS", "SET_ASIDE", "broker.FLOOD", "broker.BLOCKED"
_ALWAYS = frozenset({SET_ASIDE, FLOOD, BLOCKED})
"""Alarms that no number of others hides."""

CHANGES = "changes"
PART_OF = "part_of"
"""The name under which an entry of the audit has the change of many boxes that it belongs to."""
_OPERATION, _ROLLOUT = "operation", "rollout.started"
"""The kinds of the entries that stand for such a change: each is written when the change starts."""

_MESSAGES = "messages/"
_PROGRESS = "progress"


class Refusal(StrEnum):
    """Requests to enrol that were refused, as they are counted: with an alarm each, or beyond a token's throttle."""

    ALARMED = "alarmed"
    THROTTLED = "throttled"


def add_audit(connection: Connection, *entries: AuditEntry) -> None:
    """Store what persons changed; tables of any version take it, unless it is a part of a change of many boxes.

    The audit's columns are those of edgegpu 0.1.0, and one of such parts, which `migrate` does not write.
    """
    rows = [values_of(one) for one in entries]
    has_parts = any(PART_OF in one.detail for one in entries)
    for row in rows:
        del row["number"]
        if has_parts:
            row[PART_OF] = row["detail"].get(PART_OF)
    connection.execute(insert(_AUDIT), rows)


_NEXT = text(
    "INSERT INTO meta (key, value) VALUES (:key, :by) "
    "ON CONFLICT (key) DO UPDATE SET value = meta.value + :by RETURNING value"
)


def next_number(connection: Connection, key: str, *, by: int = 1) -> int:
    """Raise a counter of the whole store and return it; other transactions that raise it wait for this one."""
    return int(connection.execute(_NEXT, {"key": key, "by": by}).scalar_one())


def next_numbers(connection: Connection, keys: Collection[str]) -> dict[str, int]:
    """Raise several counters by one and return them.

    Each is locked until the end of the transaction, the first by name first: two transactions that raise some of the
    same counters wait, but never for each other.
    """
    statement = upsert(connection, _META)
    raised = {"value": _META.c.value + statement.excluded.value}
    statement = statement.on_conflict_do_update(index_elements=[_META.c.key], set_=raised)
    rows = [{"key": key, "value": 1} for key in sorted(keys)]
    found = connection.execute(statement.returning(_META.c.key, _META.c.value), rows)
    return {row.key: row.value for row in found}


class NoteTable:
    """The events, alarms, audit, key sets and numbers of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # numbers

    def number(self, key: str) -> int:
        """Return a number of the whole store, 0 where it was never written."""
        found = self._connection.execute(select(_META.c.value).where(_META.c.key == key)).scalar_one_or_none()
        return found or 0

    def changed(self, changes: int = 1) -> int:
        """Count one or more changes by a person, which the controllers shall notice; return the counter.

        The row is locked until the end of the transaction, so who reads the counter has all changes up to it. Of
        controllers the leader alone writes it, for operations.
        """
        return next_number(self._connection, CHANGES, by=changes)

    def moved_on(self) -> None:
        """Count that rollouts or operations moved on: a transaction's last write, so that nobody waits in a cycle."""
        next_number(self._connection, _PROGRESS)

    def progress(self) -> int:
        """Return the counter of `moved_on`."""
        return self.number(_PROGRESS)

    def ingested(self, partition: int, messages: int) -> None:
        """Count messages of boxes; `partition` is one that the caller holds, so no other controller writes this row."""
        next_number(self._connection, f"{_MESSAGES}{partition}", by=messages)

    def messages(self) -> int:
        """Return how many messages of boxes were ever taken."""
        query = select(func.sum(_META.c.value)).where(_META.c.key.startswith(_MESSAGES))
        return int(self._connection.execute(query).scalar_one() or 0)

    def refused(self, kind: Refusal, number: int = 1) -> None:
        """Count refused requests to enrol."""
        next_number(self._connection, f"refused/{kind}", by=number)

    def refusals(self) -> Mapping[Refusal, int]:
        """Return how many requests to enrol were ever refused, by kind."""
        return {kind: self.number(f"refused/{kind}") for kind in Refusal}

    # the keys' chain

    def chain(self) -> tuple[KeySetLink, ...]:
        """Return the sets of controllers' keys, first to last."""
        query = select(_KEYS.c.text, _KEYS.c.sig).order_by(_KEYS.c.version)
        return tuple(KeySetLink(set=text, sig=sig) for text, sig in self._connection.execute(query))

    def add_link(self, version: int, link: KeySetLink) -> None:
        """Store the next set of keys."""
        self._connection.execute(insert(_KEYS).values(version=version, text=link.set, sig=link.sig))

    # events, alarms and the audit

    def add_events(self, events: Sequence[BoxEvent]) -> None:
        """Store events of boxes; a transaction of which the box has an event already is left out.

        A box whose journal was lost, or that was enrolled anew, reports its transactions again, under other stamps.
        """
        known = self._transactions({one.device for one in events if one.transaction is not None})
        new = []
        for one in events:
            if one.transaction is not None:
                key = (one.device, one.about)
                if key in known:
                    continue
                known.add(key)
            new.append(one)
        if new:
            self._connection.execute(insert(_EVENTS), [values_of(one) for one in new])

    def _transactions(self, devices: Collection[str]) -> set[tuple[str, str]]:
        """Return device and id of each transaction that is known of these boxes."""
        if not devices:
            return set()
        c = _EVENTS.c
        query = select(c.device, c.about).where(c.device.in_(devices), c.kind == TRANSACTION)
        return {(row.device, row.about) for row in self._connection.execute(query)}

    def events(
        self,
        device: DeviceId | None = None,
        *,
        limit: int,
        scope: Sequence[LabelTerm] = (),
        transactions: bool | None = None,
    ) -> list[BoxEvent]:
        """Return the last events of a box, or of all in a scope, newest first.

        `transactions`: those that report a transaction of the installer alone, or all others alone.
        """
        found = self._events(device, limit=limit, transactions=transactions, scope=scope)
        return [one.event for one in found]

    def events_before(
        self, device: DeviceId, *, before: int, limit: int, transactions: bool | None = None
    ) -> list[NumberedEvent]:
        """Return events of a box, newest first; those with lower numbers than `before`, if that is one.

        `transactions`: as `events` has it.
        """
        return self._events(device, before=before, limit=limit, transactions=transactions)

    def _events(
        self,
        device: DeviceId | None,
        *,
        limit: int,
        transactions: bool | None,
        before: int = 0,
        scope: Sequence[LabelTerm] = (),
    ) -> list[NumberedEvent]:
        c = _EVENTS.c
        query = select(_EVENTS).where(*in_scope(c.device, scope)).order_by(c.number.desc()).limit(limit)
        if device is not None:
            query = query.where(c.device == device)
        if before:
            query = query.where(c.number < before)
        if transactions is not None:
            query = query.where((c.kind == TRANSACTION) == transactions)
        rows = self._connection.execute(query).mappings().all()
        return [NumberedEvent(int(row["number"]), record_of(BoxEvent, row)) for row in rows]

    def trim_events(self, *, held: Collection[int] = ALL) -> None:
        """Drop of each box's events all but the newest `KEPT_EVENTS`."""
        c = _EVENTS.c
        mine = of_partitions(c.device, held)
        many = select(c.device).where(mine).group_by(c.device).having(func.count() > KEPT_EVENTS)
        for device in self._connection.execute(many).scalars().all():
            newest = select(c.number).where(c.device == device).order_by(c.number.desc())
            oldest = self._connection.execute(newest.offset(KEPT_EVENTS - 1).limit(1)).scalar_one()
            self._connection.execute(delete(_EVENTS).where(c.device == device, c.number < oldest))

    def forget_box(self, device: DeviceId, *, by: str) -> None:
        """Drop the events of a box; its alarms count as seen by the person who forgets it."""
        self._connection.execute(delete(_EVENTS).where(_EVENTS.c.device == device))
        unseen = (_ALARMS.c.device == device) & (_ALARMS.c.seen_by == "")
        self._connection.execute(update(_ALARMS).where(unseen).values(seen_by=by))

    def alarm(self, kind: str, *, device: str, text: str, now_s: float, times: int = 1) -> None:
        """Raise an alarm, for something that has happened so often; one that nobody has seen yet is not repeated.

        A box names the kinds of its own alarms: those above `MOST_ALARMS` that nobody has seen become one, MANY_ALARMS.
        """
        if self._alarm_again(kind, device=device, text=text, now_s=now_s, times=times):
            return
        c = _ALARMS.c
        unseen = select(func.count()).where(c.device == device, c.seen_by == "")
        if device and kind not in _ALWAYS and self._connection.execute(unseen).scalar_one() >= MOST_ALARMS:
            kind = MANY_ALARMS
            text = phrase(
                "more than %(most)s kinds of alarms wait to be seen, the last: %(last)s", most=MOST_ALARMS, last=text
            )
            if self._alarm_again(kind, device=device, text=text, now_s=now_s, times=times):
                return
        values = {"kind": kind, "device": device, "text": text, "at_s": now_s, "times": times, "seen_by": ""}
        values["phrase"] = phrase_json(text)
        self._connection.execute(insert(_ALARMS).values(values))

    def _alarm_again(self, kind: str, *, device: str, text: str, now_s: float, times: int) -> bool:
        c = _ALARMS.c
        same = (c.kind == kind) & (c.device == device) & (c.seen_by == "")
        again = {"times": c.times + times, "text": text, "at_s": now_s, "phrase": phrase_json(text)}
        return bool(self._connection.execute(update(_ALARMS).where(same).values(again)).rowcount)

    def alarms(self, *, unseen: bool = True, limit: int = 1_000, scope: Sequence[LabelTerm] = ()) -> list[Alarm]:
        """Return alarms of boxes in a scope, newest first; without one those of no box too."""
        query = select(_ALARMS).where(*in_scope(_ALARMS.c.device, scope))
        query = query.order_by(_ALARMS.c.number.desc()).limit(limit)
        if unseen:
            query = query.where(_ALARMS.c.seen_by == "")
        return [record_of(Alarm, row) for row in self._connection.execute(query).mappings().all()]

    def alarm_seen(self, number: int, *, by: str, scope: Sequence[LabelTerm] = ()) -> Alarm | None:
        """Mark an alarm as seen by a person; return it as it was before, None where none exists in their scope."""
        where = (_ALARMS.c.number == number, *in_scope(_ALARMS.c.device, scope))
        row = self._connection.execute(select(_ALARMS).where(*where)).mappings().one_or_none()
        self._connection.execute(update(_ALARMS).where(*where).values(seen_by=by))
        return None if row is None else record_of(Alarm, row)

    def end_alarms(self, kind: str, *, by: str) -> None:
        """Count the unseen alarms of a kind that are no box's as seen: what they say is over by itself."""
        c = _ALARMS.c
        where = (c.kind == kind) & (c.device == "") & (c.seen_by == "")
        self._connection.execute(update(_ALARMS).where(where).values(seen_by=by))

    def audit(self, *entries: AuditEntry) -> None:
        """Store what a person changed."""
        add_audit(self._connection, *entries)

    def trim_audit(self, what: str, *, keep: int) -> None:
        """Drop the oldest entries of one kind, all but `keep`."""
        c = _AUDIT.c
        newest = select(c.number).where(c.what == what).order_by(c.number.desc())
        oldest_kept = self._connection.execute(newest.offset(keep - 1).limit(1)).scalar_one_or_none()
        if oldest_kept is not None:
            self._connection.execute(delete(_AUDIT).where(c.what == what, c.number < oldest_kept))

    def audit_page(self, where: AuditFilter, *, limit: int, scope: Sequence[LabelTerm] = ()) -> list[AuditEntry]:
        """Return entries of boxes in a scope, newest first; without a scope those of no box too."""
        c = _AUDIT.c
        query = select(_AUDIT).where(*_audited_as(_AUDIT, where, scope))
        if where.before:
            query = query.where(c.number < where.before)
        has_time = bool(where.since_s or where.until_s)
        if has_time:
            query = query.where(*_numbers_within(where))
        if where.whole:
            # A plain column is looked up by its index, which has the entries of all time.
            alone = func.coalesce(c.part_of, "") == "" if has_time else c.part_of.is_(None)
            query = query.where(alone | c.number.in_(_begun_before(where, scope)) if where.since_s else alone)
        rows = self._connection.execute(query.order_by(c.number.desc()).limit(limit)).mappings().all()
        return [record_of(AuditEntry, row) for row in rows]

    def audits(self, device: str | None = None, *, limit: int) -> list[AuditEntry]:
        """Return what people changed, newest first."""
        query = select(_AUDIT).order_by(_AUDIT.c.number.desc()).limit(limit)
        if device is not None:
            query = query.where(_AUDIT.c.device == device)
        return [record_of(AuditEntry, row) for row in self._connection.execute(query).mappings().all()]


def _audited_as(entries: FromClause, where: AuditFilter, scope: Sequence[LabelTerm]) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of a filter, but for its page and for `whole`."""
    c = entries.c
    yield from in_scope(c.device, scope)
    if where.by:
        yield (c.by == where.by) | c.by.startswith(f"{where.by}/", autoescape=True)
    if where.device:
        yield c.device == where.device
    if where.what:
        yield (c.what == where.what) | c.what.startswith(f"{where.what}.", autoescape=True)
    if where.since_s:
        yield c.at_s >= where.since_s
    if where.until_s:
        yield c.at_s < where.until_s
    if where.app:
        yield _concerns_app(c.detail, where.app)
    if where.part_of:
        yield c.part_of == where.part_of


def _numbers_within(where: AuditFilter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that numbers lie between those of the time asked for: the page is then read by number.

    With `+ 0` a database looks the numbers up by time, and does not walk through them until one is of that time.
    """
    within = _AUDIT.alias("within")
    times = [within.c.at_s >= where.since_s] if where.since_s else []
    times += [within.c.at_s < where.until_s] if where.until_s else []
    if where.since_s:
        yield _AUDIT.c.number >= select(func.min(within.c.number + 0)).where(*times).scalar_subquery()
    if where.until_s:
        yield _AUDIT.c.number <= select(func.max(within.c.number + 0)).where(*times).scalar_subquery()


def _begun_before(where: AuditFilter, scope: Sequence[LabelTerm]) -> Select[tuple[int]]:
    """Return the number of the newest part of each change of many boxes that has begun before the time asked for.

    The entry that stands for such a change is older than that time, so this part stands for it there.
    """
    parts, begun = _AUDIT.alias("parts"), _AUDIT.alias("begun")
    rollout = literal("rollout/") + begun.c.detail["rollout"].as_string()
    id_ = case((begun.c.what == _OPERATION, begun.c.detail["id"].as_string()), else_=rollout)
    shown = select(func.coalesce(id_, "")).where(
        begun.c.what.in_((_OPERATION, _ROLLOUT)), begun.c.at_s >= where.since_s
    )
    part_of = func.coalesce(parts.c.part_of, "")  # as in `audit_page`
    newest = select(func.max(parts.c.number)).where(*_audited_as(parts, where, scope))
    return newest.where(part_of != "", part_of.not_in(shown)).group_by(part_of)


def _concerns_app(detail: ColumnElement[Json], app: str) -> ColumnElement[bool]:
    """Return the condition that an entry names an app: as an item of a document, or as arguments."""
    namespace, _, name = app.rpartition("/")
    words = cast(detail, Text)
    item = f"app_limits/{namespace}/{name}/" if namespace else f"/{name}/"
    named = [("app", name), *([("namespace", namespace)] if namespace else [])]
    return or_(words.contains(item, autoescape=True), and_(*(_has_value(words, *one) for one in named)))


def _has_value(words: ColumnElement[str], name: str, value: str) -> ColumnElement[bool]:
    """Return the condition that JSON has a value under a name somewhere, with a space behind the colon or without."""
    texts = (f"{json.dumps(name)}:{space}{json.dumps(value)}" for space in ("", " "))
    return or_(*(words.contains(text, autoescape=True) for text in texts))
