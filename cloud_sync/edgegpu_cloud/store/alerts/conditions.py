"""What is wrong in the fleet now, asked of the database over all boxes at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Text, case, cast, func, or_, select

from edgegpu_cloud.phrases import read_phrase
from edgegpu_cloud.store.records import UNINSTALLED, BoxState, Json
from edgegpu_cloud.store.schema import AlarmRow, BoxRow, CertificateRow, LatestRow, table
from edgegpu_cloud.store.summaries.schema import SummaryRow
from edgegpu_sync.topics import TopicKind

_BOXES, _SUMMARIES, _LATEST = table(BoxRow), table(SummaryRow), table(LatestRow)
_CERTIFICATES, _ALARMS = table(CertificateRow), table(AlarmRow)

MOST = 20_000
"""Rows of one answer: more boxes than a controller is made for."""


@dataclass(frozen=True, slots=True)
class BoxFact:
    """A box, a time (seconds since 1970) or a number of it, and a text."""

    device: str
    name: str
    number: float
    text: str = ""
    kind: str = ""


class Conditions:
    """The questions of one transaction; they count enrolled boxes alone, which edgegpu was not taken off."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _there(self) -> ColumnElement[bool]:
        return (_BOXES.c.state == BoxState.ENROLLED.value) & (_SUMMARIES.c.left != UNINSTALLED)

    def offline(self, heard_before_s: float) -> list[BoxFact]:
        """Return boxes that have been online, and are offline or were not heard since then.

        `number`: when such a silent one was heard last; 0 where the broker has said that it is gone.
        """
        b = _BOXES.c
        silent_since_s = case((b.online, b.seen_at_s), else_=0.0)
        query = (
            select(b.device, b.name, silent_since_s)
            .join(_SUMMARIES, _SUMMARIES.c.device == b.device)
            .where(self._there(), b.seen_at_s > 0, or_(b.online.is_(False), b.seen_at_s < heard_before_s))
            .order_by(b.name)
            .limit(MOST)
        )
        return [BoxFact(*row) for row in self._connection.execute(query)]

    def problems(self) -> list[BoxFact]:
        """Return boxes that have refused or failed at something; `number` of settings."""
        b, s = _BOXES.c, _SUMMARIES.c
        query = select(b.device, b.name, s.problems).join(_SUMMARIES, s.device == b.device)
        found = self._connection.execute(query.where(self._there(), s.problems > 0).order_by(b.name).limit(MOST))
        return [BoxFact(*row) for row in found]

    def bodies(
        self, kind: TopicKind, *, holding: str = "", devices: Sequence[str] | None = None
    ) -> list[tuple[str, str, Json]]:
        """Return device, name and last message of a kind: those whose text holds a word, or of these devices."""
        b, c = _BOXES.c, _LATEST.c
        query = select(b.device, b.name, c.body).join(_LATEST, c.device == b.device)
        query = query.join(_SUMMARIES, _SUMMARIES.c.device == b.device)
        query = query.where(self._there(), c.kind == kind.value)
        if holding:
            query = query.where(cast(c.body, Text).contains(holding, autoescape=True))
        if devices is not None:
            query = query.where(b.device.in_(devices))
        return [(row[0], row[1], row[2]) for row in self._connection.execute(query.order_by(b.name).limit(MOST))]

    def without_one_result_topic(self) -> list[str]:
        """Return the names of boxes whose agent sends each command's results under a topic of its own."""
        births = self.bodies(TopicKind.STATUS)
        return [name for _, name, body in births if not body.get("one_result_topic", False)]

    def unhealthy(self) -> list[str]:
        """Return boxes whose last report of health is bad."""
        query = select(_SUMMARIES.c.device).where(_SUMMARIES.c.health == "bad").limit(MOST)
        return list(self._connection.execute(query).scalars())

    def claims(self) -> list[BoxFact]:
        """Return boxes that report a cluster that does not count; `text`: that cluster, `kind`: their own, or empty."""
        b, s = _BOXES.c, _SUMMARIES.c
        query = select(b.device, b.name, b.enrolled_at_s, s.claim, s.cluster).join(_SUMMARIES, s.device == b.device)
        found = self._connection.execute(query.where(self._there(), s.claim != "").order_by(b.name).limit(MOST))
        return [BoxFact(*row) for row in found]

    def rivals(self) -> dict[str, list[str]]:
        """Return the names of the boxes that say that they apply one cluster's limits, where several do, by cluster."""
        b, s = _BOXES.c, _SUMMARIES.c
        where = (self._there(), s.holder, b.online, s.cluster != "")
        several = select(s.cluster).join(_BOXES, s.device == b.device).where(*where)
        several = several.group_by(s.cluster).having(func.count() > 1)
        query = select(s.cluster, b.name).join(_BOXES, s.device == b.device).where(*where, s.cluster.in_(several))
        found: dict[str, list[str]] = {}
        for cluster, name in self._connection.execute(query.order_by(s.cluster, b.name).limit(MOST)):
            found.setdefault(cluster, []).append(name)
        return found

    def ending_certificates(self, before_s: float) -> list[BoxFact]:
        """Return boxes whose last certificate ends before then; `number`: when."""
        b, c = _BOXES.c, _CERTIFICATES.c
        ends_s = func.max(c.not_after_s)
        query = (
            select(b.device, b.name, ends_s)
            .join(_CERTIFICATES, (c.device == b.device) & (c.enrolment == b.enrolment))
            .join(_SUMMARIES, _SUMMARIES.c.device == b.device)
            .where(self._there(), c.revoked_at_s.is_(None))
            .group_by(b.device, b.name)
            .having(ends_s < before_s)
            .order_by(b.name)
            .limit(MOST)
        )
        return [BoxFact(*row) for row in self._connection.execute(query)]

    def unseen_alarms(self) -> list[BoxFact]:
        """Return the alarms that nobody has seen; `number`: when, `name` empty where it is no box's."""
        a = _ALARMS.c
        query = select(a.device, func.coalesce(_BOXES.c.name, ""), a.at_s, a.text, a.kind, a.phrase)
        query = query.join(_BOXES, _BOXES.c.device == a.device, isouter=True).where(a.seen_by == "")
        rows = self._connection.execute(query.order_by(a.number).limit(MOST))
        return [
            BoxFact(device, name, at_s, read_phrase(text, parts), kind)
            for device, name, at_s, text, kind, parts in rows
        ]

    def names(self, devices: Sequence[str]) -> dict[str, str]:
        """Return the names of boxes."""
        query = select(_BOXES.c.device, _BOXES.c.name).where(_BOXES.c.device.in_(devices))
        return {row.device: row.name for row in self._connection.execute(query)}
