"""Alerts, and messages that wait for a webhook, in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, or_, select, update

from edgegpu_cloud.store.alerts.schema import AlertRow, DeliveryRow
from edgegpu_cloud.store.labels import in_scope
from edgegpu_cloud.store.notes import next_number
from edgegpu_cloud.store.records import LabelTerm
from edgegpu_cloud.store.schema import BoxRow, MetaRow, table

_ALERTS, _WAITING, _BOXES, _META = table(AlertRow), table(DeliveryRow), table(BoxRow), table(MetaRow)

_CHANGED = "alerts"
"""The key of the counter of changes that people see."""

MOST_WAITING = 1_000
"""Messages that may wait for a webhook; the oldest go first."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    """A message that waits for a webhook; `id` is the same at each try."""

    number: int
    id: str
    url: str
    body: str
    at_s: float
    tries: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """The alerts that are asked for: those that fire, those that are over (`over`), or both (`over` is None).

    `kind` is one kind; `search` is looked for in what they say, and in the names of their boxes. Empty ones do not
    count.
    """

    over: bool | None = False
    kind: str = ""
    search: str = ""


THAT_FIRE = AlertFilter()


class AlertTable:
    """The alerts of one transaction. Rows come and go as values by column: `alerts/` makes them into alerts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self) -> list[Values]:
        """Return the alerts that are not over."""
        query = select(_ALERTS).where(_ALERTS.c.open_key.is_not(None)).order_by(_ALERTS.c.number)
        return [dict(row) for row in self._connection.execute(query).mappings().all()]

    def page(
        self,
        where: AlertFilter,
        *,
        device: str | None = None,
        scope: Sequence[LabelTerm] = (),
        before: int = 0,
        limit: int,
    ) -> list[Values]:
        """Return alerts that have fired, newest first: of a box, or of all in a scope; those before a number."""
        query = select(_ALERTS).where(_ALERTS.c.firing_at_s.is_not(None), *in_scope(_ALERTS.c.device, scope))
        query = query.where(*_conditions(where))
        if device is not None:
            query = query.where(_ALERTS.c.device == device)
        if before:
            query = query.where(_ALERTS.c.number < before)
        query = query.order_by(_ALERTS.c.number.desc()).limit(limit)
        return [dict(row) for row in self._connection.execute(query).mappings().all()]

    def get(self, number: int, scope: Sequence[LabelTerm] = ()) -> Values | None:
        """Return an alert of a box in a scope; without one of no box too."""
        query = select(_ALERTS).where(_ALERTS.c.number == number, *in_scope(_ALERTS.c.device, scope))
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else dict(row)

    def mark(self) -> str:
        """Return a text that is another one after each change of an alert that people see.

        The counter has all changes but the purge, which the number of rows shows.
        """
        changed = select(_META.c.value).where(_META.c.key == _CHANGED).scalar_subquery()
        fired = select(changed, func.count()).where(_ALERTS.c.firing_at_s.is_not(None))
        return repr(tuple(map(str, self._connection.execute(fired).one())))

    def _changed(self) -> None:
        """Count a change that people see; before the rows are written, so that two who do both never meet in a cycle.

        The leader raises the counter, and a person who silences an alert: no other controller waits for them.
        """
        next_number(self._connection, _CHANGED)

    def _changed_by(self, alerts: Iterable[Values]) -> None:
        if any(one["firing_at_s"] is not None for one in alerts):
            self._changed()

    def firing(self, scope: Sequence[LabelTerm] = (), *, unsilenced_at_s: float | None = None) -> int:
        """Return how many alerts of boxes in a scope fire; without one those of no box too.

        `unsilenced_at_s`: count those alone that nobody has silenced at that moment, seconds since 1970.
        """
        c = _ALERTS.c
        fires = [c.open_key.is_not(None), c.firing_at_s.is_not(None), *in_scope(c.device, scope)]
        if unsilenced_at_s is not None:
            fires.append(c.silenced_until_s <= unsilenced_at_s)
        return int(self._connection.execute(select(func.count()).select_from(_ALERTS).where(*fires)).scalar_one())

    def add(self, alerts: Sequence[Values]) -> list[int]:
        """Write new alerts; return their numbers, in the same order."""
        if not alerts:
            return []
        self._changed_by(alerts)
        made = insert(_ALERTS).returning(_ALERTS.c.number, sort_by_parameter_order=True)
        return [int(number) for number in self._connection.execute(made, alerts).scalars()]

    def put(self, alerts: Mapping[int, Values]) -> None:
        """Update alerts by their numbers; each with the same columns."""
        if alerts:
            self._changed_by(alerts.values())
            rows = [{"at_number": number, **values} for number, values in alerts.items()]
            self._connection.execute(update(_ALERTS).where(_ALERTS.c.number == bindparam("at_number")), rows)

    def drop(self, numbers: Sequence[int]) -> None:
        """Drop alerts that never fired."""
        if numbers:
            where = _ALERTS.c.number == bindparam("at_number")
            self._connection.execute(delete(_ALERTS).where(where), [{"at_number": number} for number in numbers])

    def silence(self, number: int, *, until_s: float, by: str, scope: Sequence[LabelTerm] = ()) -> bool:
        """Let nobody be told of an alert until then; return whether it is there, in the scope, and not over."""
        here = (_ALERTS.c.number == number, _ALERTS.c.open_key.is_not(None), *in_scope(_ALERTS.c.device, scope))
        values = {"silenced_until_s": until_s, "silenced_by": by}
        self._changed()
        return bool(self._connection.execute(update(_ALERTS).where(*here).values(values)).rowcount)

    # messages for webhooks

    def add_delivery(self, *, id_: str, url: str, body: str, now_s: float) -> int:
        """Let a message wait for a webhook; return how many older ones were dropped for want of room."""
        values = {"id": id_, "url": url, "body": body, "at_s": now_s, "tries": 0, "next_at_s": now_s, "error": ""}
        self._connection.execute(insert(_WAITING).values(values))
        count = self._connection.execute(select(func.count()).select_from(_WAITING)).scalar_one()
        if count <= MOST_WAITING:
            return 0
        oldest = select(_WAITING.c.number).order_by(_WAITING.c.number).limit(count - MOST_WAITING)
        numbers = self._connection.execute(oldest).scalars().all()
        self._connection.execute(delete(_WAITING).where(_WAITING.c.number.in_(numbers)))
        return len(numbers)

    def claim(self, now_s: float, *, until_s: float, limit: int) -> list[StoredDelivery]:
        """Return messages that are due; nobody else gets them before `until_s`."""
        c = _WAITING.c
        query = select(_WAITING).where(c.next_at_s <= now_s).order_by(c.number).limit(limit).with_for_update()
        rows = self._connection.execute(query).mappings().all()
        numbers = [row["number"] for row in rows]
        if numbers:
            self._connection.execute(update(_WAITING).where(c.number.in_(numbers)).values(next_at_s=until_s))
        names = StoredDelivery.__dataclass_fields__
        return [StoredDelivery(**{name: row[name] for name in names}) for row in rows]

    def delivered(self, number: int) -> None:
        """Drop a message that its receiver has taken, or that is given up."""
        self._connection.execute(delete(_WAITING).where(_WAITING.c.number == number))

    def failed(self, number: int, *, error: str, next_at_s: float) -> None:
        """Let a message wait for its next try."""
        values = {"tries": _WAITING.c.tries + 1, "error": error, "next_at_s": next_at_s}
        self._connection.execute(update(_WAITING).where(_WAITING.c.number == number).values(values))

    def waiting(self) -> tuple[int, str]:
        """Return how many messages wait, and the error of the one that was tried last."""
        count = self._connection.execute(select(func.count()).select_from(_WAITING)).scalar_one()
        tried = select(_WAITING.c.error).where(_WAITING.c.tries > 0).order_by(_WAITING.c.next_at_s.desc()).limit(1)
        return count, self._connection.execute(tried).scalar_one_or_none() or ""


def _conditions(where: AlertFilter) -> list[ColumnElement[bool]]:
    c, found = _ALERTS.c, list[ColumnElement[bool]]()
    if where.over is not None:
        found.append(c.open_key.is_(None) if where.over else c.open_key.is_not(None))
    if where.kind:
        found.append(c.kind == where.kind)
    if where.search:
        texts = [one.icontains(where.search, autoescape=True) for one in (c.text, c.about)]
        named = select(_BOXES.c.device).where(_BOXES.c.name.icontains(where.search, autoescape=True))
        found.append(or_(*texts, c.device.in_(named)))
    return found
