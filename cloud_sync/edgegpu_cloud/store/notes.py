"""Events, alarms and the audit; the chain of key sets; numbers of the whole store."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, func, insert, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.records import Alarm, AuditEntry, BoxEvent
from edgegpu_cloud.store.schema import AlarmRow, AuditRow, EventRow, KeySetRow, MetaRow, table
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.downlink import KeySetLink

_EVENTS, _ALARMS, _AUDIT, _KEYS = table(EventRow), table(AlarmRow), table(AuditRow), table(KeySetRow)
_META = table(MetaRow)

KEPT_EVENTS = 10_000
"""Events of one box that are kept."""

MOST_ALARMS = 50
"""Alarms of one box that may be unseen at one time."""

MANY_ALARMS, SET_ASIDE = "MANY_ALARMS", "SET_ASIDE"
CHANGES, SERVER_TIME = "changes", "server_time"


class NoteTable:
    """The events, alarms, audit, key sets and numbers of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # numbers

    def number(self, key: str) -> int:
        """Return a number of the whole store, 0 where it was never written."""
        found = self._connection.execute(select(_META.c.value).where(_META.c.key == key)).scalar_one_or_none()
        return found or 0

    def changed(self) -> int:
        """Count one more change by a person, which the controller shall notice; return the counter."""
        return self._raise(CHANGES, self.number(CHANGES) + 1)

    def server_time(self, now_s: float) -> int:
        """Return the time that boxes receive, seconds since 1970: never less than they received before."""
        now, last = int(now_s), self.number(SERVER_TIME)
        return self._raise(SERVER_TIME, now) if now > last else last

    def _raise(self, key: str, value: int) -> int:
        there = self._connection.execute(update(_META).where(_META.c.key == key).values(value=value))
        if not there.rowcount:
            self._connection.execute(insert(_META).values(key=key, value=value))
        return value

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
        """Store events of boxes."""
        if events:
            self._connection.execute(insert(_EVENTS), [asdict(one) for one in events])

    def events(self, device: DeviceId | None = None, *, limit: int) -> list[BoxEvent]:
        """Return the last events of a box, or of all, newest first."""
        query = select(_EVENTS).order_by(_EVENTS.c.number.desc()).limit(limit)
        if device is not None:
            query = query.where(_EVENTS.c.device == device)
        return [record_of(BoxEvent, row) for row in self._connection.execute(query).mappings().all()]

    def forget_events(self, before_s: float) -> None:
        """Drop events that came before then, and of each box all but the newest `KEPT_EVENTS`."""
        c = _EVENTS.c
        self._connection.execute(delete(_EVENTS).where(c.at_s < before_s))
        many = select(c.device).group_by(c.device).having(func.count() > KEPT_EVENTS)
        for device in self._connection.execute(many).scalars().all():
            newest = select(c.number).where(c.device == device).order_by(c.number.desc())
            oldest = self._connection.execute(newest.offset(KEPT_EVENTS - 1).limit(1)).scalar_one()
            self._connection.execute(delete(_EVENTS).where(c.device == device, c.number < oldest))

    def forget_box(self, device: DeviceId, *, by: str) -> None:
        """Drop the events of a box; its alarms count as seen by the person who forgets it."""
        self._connection.execute(delete(_EVENTS).where(_EVENTS.c.device == device))
        unseen = (_ALARMS.c.device == device) & (_ALARMS.c.seen_by == "")
        self._connection.execute(update(_ALARMS).where(unseen).values(seen_by=by))

    def alarm(self, kind: str, *, device: str, text: str, now_s: float) -> None:
        """Raise an alarm; one that nobody has seen yet is counted, not repeated.

        A box names the kinds of its own alarms: those above `MOST_ALARMS` that nobody has seen become one, MANY_ALARMS.
        """
        if self._alarm_again(kind, device=device, text=text, now_s=now_s):
            return
        c = _ALARMS.c
        unseen = select(func.count()).where(c.device == device, c.seen_by == "")
        if device and kind != SET_ASIDE and self._connection.execute(unseen).scalar_one() >= MOST_ALARMS:
            kind, text = MANY_ALARMS, f"more than {MOST_ALARMS} kinds of alarms wait to be seen, the last: {text}"
            if self._alarm_again(kind, device=device, text=text, now_s=now_s):
                return
        values = {"kind": kind, "device": device, "text": text, "at_s": now_s, "times": 1, "seen_by": ""}
        self._connection.execute(insert(_ALARMS).values(values))

    def _alarm_again(self, kind: str, *, device: str, text: str, now_s: float) -> bool:
        c = _ALARMS.c
        same = (c.kind == kind) & (c.device == device) & (c.seen_by == "")
        again = {"times": c.times + 1, "text": text, "at_s": now_s}
        return bool(self._connection.execute(update(_ALARMS).where(same).values(again)).rowcount)

    def alarms(self, *, unseen: bool = True, limit: int = 1_000) -> list[Alarm]:
        """Return alarms, newest first."""
        query = select(_ALARMS).order_by(_ALARMS.c.number.desc()).limit(limit)
        if unseen:
            query = query.where(_ALARMS.c.seen_by == "")
        return [record_of(Alarm, row) for row in self._connection.execute(query).mappings().all()]

    def alarm_seen(self, number: int, *, by: str) -> bool:
        """Mark an alarm as seen by a person; return whether it exists."""
        done = self._connection.execute(update(_ALARMS).where(_ALARMS.c.number == number).values(seen_by=by))
        return bool(done.rowcount)

    def audit(self, entry: AuditEntry) -> None:
        """Store what a person changed."""
        self._connection.execute(insert(_AUDIT).values(asdict(entry)))

    def audits(self, device: str | None = None, *, limit: int) -> list[AuditEntry]:
        """Return what people changed, newest first."""
        query = select(_AUDIT).order_by(_AUDIT.c.number.desc()).limit(limit)
        if device is not None:
            query = query.where(_AUDIT.c.device == device)
        return [record_of(AuditEntry, row) for row in self._connection.execute(query).mappings().all()]
