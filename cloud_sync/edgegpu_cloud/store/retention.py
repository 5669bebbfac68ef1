"""Retention: what has ended is kept for some days and purged then, in bounded batches; what is open is never purged."""

from collections.abc import Collection
from typing import Protocol

from sqlalchemy import ColumnElement, Connection, Table, delete, false, select, tuple_

from edgegpu_cloud.store.alerts.schema import AlertRow
from edgegpu_cloud.store.controllers.leases import ALL, of_partitions
from edgegpu_cloud.store.operations.records import BoxOutcome
from edgegpu_cloud.store.operations.schema import OperationBoxRow, OperationRow
from edgegpu_cloud.store.records import LEADER, BoxState, RequestState
from edgegpu_cloud.store.rollouts.schema import RolloutBoxRow, RolloutRow
from edgegpu_cloud.store.schema import (
    AlarmRow,
    AuditRow,
    BoxRow,
    CertificateRow,
    CommandRow,
    EventRow,
    HistoryRow,
    RequestRow,
    TokenRow,
    table,
)
from edgegpu_cloud.store.telemetry.schema import CardUseRow, EvidenceRow

PURGED_AT_ONCE = 1_000
"""Rows of one kind that one transaction purges: others wait for it."""

_DAY_S = 86_400.0
_COMMANDS, _HISTORY, _EVENTS = table(CommandRow), table(HistoryRow), table(EventRow)
_ROLLOUTS, _ROLLOUT_BOXES = table(RolloutRow), table(RolloutBoxRow)
_OPERATIONS, _OPERATION_BOXES = table(OperationRow), table(OperationBoxRow)
_ALERTS, _ALARMS, _AUDIT = table(AlertRow), table(AlarmRow), table(AuditRow)
_TOKENS, _REQUESTS, _CERTIFICATES, _BOXES = table(TokenRow), table(RequestRow), table(CertificateRow), table(BoxRow)
_EVIDENCE, _USE = table(EvidenceRow), table(CardUseRow)
_NONE = false()


class Retention(Protocol):
    """For how many days each kind is kept: the section `retention` of controller.yaml."""

    @property
    def commands_days(self) -> int:
        """Of commands with their history, after their end."""
        ...

    @property
    def events_days(self) -> int:
        """Of boxes' events."""
        ...

    @property
    def operations_days(self) -> int:
        """Of operations, after the end of storing; one whose boxes have not ended it is open."""
        ...

    @property
    def rollouts_days(self) -> int:
        """Of rollouts, after their end."""
        ...

    @property
    def alerts_days(self) -> int:
        """Of alerts after their end, and of alarms that somebody has seen."""
        ...

    @property
    def evidence_days(self) -> int:
        """Of what containers saw of their cards."""
        ...

    @property
    def use_days(self) -> int:
        """Of the use of cards."""
        ...

    @property
    def enrolments_days(self) -> int:
        """Of tokens, with the attempts that have ended, and of certificates, after their end."""
        ...

    @property
    def audit_days(self) -> int:
        """Of the audit; 0: for ever."""
        ...


class Purge:
    """The purge of one transaction: each kind by its own number of days, `PURGED_AT_ONCE` rows of it at most."""

    def __init__(self, connection: Connection, keep: Retention, *, now_s: float) -> None:
        self._connection, self._keep, self._now_s = connection, keep, now_s
        self.more = False
        """Whether rows of some kind wait for the next transaction."""

    def run(self, *, held: Collection[int] = ALL) -> None:
        """Purge the kinds of boxes, of the boxes of these partitions; the leader purges those of the fleet too."""
        self._commands(held)
        mine = of_partitions(_EVENTS.c.device, held)
        self._delete(_EVENTS, (_EVENTS.c.at_s < self._before(self._keep.events_days)) & mine)
        if LEADER not in held:
            return
        self._with_boxes(_ROLLOUTS, _ROLLOUT_BOXES, _ROLLOUT_BOXES.c.rollout, self._keep.rollouts_days)
        of, days = _OPERATION_BOXES.c.operation, self._keep.operations_days
        self._with_boxes(_OPERATIONS, _OPERATION_BOXES, of, days, kept=_waits_for_boxes())
        over_s = self._before(self._keep.alerts_days)
        self._delete(_ALERTS, _ALERTS.c.resolved_at_s < over_s)
        self._delete(_ALARMS, (_ALARMS.c.seen_by != "") & (_ALARMS.c.at_s < over_s))
        self._delete(_EVIDENCE, _EVIDENCE.c.at_s < self._before(self._keep.evidence_days))
        self._delete(_USE, _USE.c.quarter_s < int(self._before(self._keep.use_days)))
        self._enrolments(self._before(self._keep.enrolments_days))
        if self._keep.audit_days:
            self._delete(_AUDIT, _AUDIT.c.at_s < self._before(self._keep.audit_days))

    def _before(self, days: int) -> float:
        return self._now_s - days * _DAY_S

    def _delete(self, rows: Table, where: ColumnElement[bool]) -> int:
        key = tuple_(*rows.primary_key.columns)
        some = select(*rows.primary_key.columns).where(where).limit(PURGED_AT_ONCE)
        done = self._connection.execute(delete(rows).where(key.in_(some))).rowcount
        self.more |= done >= PURGED_AT_ONCE
        return done

    def _commands(self, held: Collection[int]) -> None:
        ended = _COMMANDS.c.ended_at_s < self._before(self._keep.commands_days)
        query = select(_COMMANDS.c.id).where(ended, of_partitions(_COMMANDS.c.device, held)).limit(PURGED_AT_ONCE)
        ids = self._connection.execute(query).scalars().all()
        if ids:
            self._connection.execute(delete(_HISTORY).where(_HISTORY.c.command.in_(ids)))
            self._connection.execute(delete(_COMMANDS).where(_COMMANDS.c.id.in_(ids)))
        self.more |= len(ids) >= PURGED_AT_ONCE

    def _enrolments(self, over_s: float) -> None:
        """Purge tokens that ended before then, after their attempts, and certificates.

        An attempt stays as long as its token: a box that asks again has to get the same answer. One that waits, or that
        is approved and has not been answered, is open. A certificate whose box has no later one stays too: alerts and
        people read its end there.
        """
        t, r, c = _TOKENS.c, _REQUESTS.c, _CERTIFICATES.c
        lasting = select(t.digest).where(t.expires_at_s >= over_s)
        ended = r.state.in_([RequestState.REFUSED.value, RequestState.DONE.value]) & (r.at_s < over_s)
        self._delete(_REQUESTS, ended & r.token.not_in(lasting))
        self._delete(_TOKENS, (t.expires_at_s < over_s) & t.digest.not_in(select(r.token)))
        later = _CERTIFICATES.alias().c
        beside = (later.device == c.device) & later.revoked_at_s.is_(None)
        last = ~select(later.serial).where(beside, later.not_after_s > c.not_after_s).exists()
        kept = last & c.revoked_at_s.is_(None) & c.device.in_(select(_BOXES.c.device))
        self._delete(_CERTIFICATES, (c.not_after_s < over_s) & ~kept)

    def _with_boxes(
        self, of: Table, boxes: Table, refers: ColumnElement[object], days: int, *, kept: ColumnElement[bool] = _NONE
    ) -> None:
        """Purge the oldest one that has ended, after its boxes: of ten thousand a part each time."""
        (key,) = of.primary_key.columns
        old = (of.c.ended_at_s < self._before(days)) & ~kept
        query = select(key).where(old).order_by(of.c.ended_at_s).limit(1)
        oldest = self._connection.execute(query).scalar_one_or_none()
        if oldest is None:
            return
        if self._delete(boxes, refers == oldest) < PURGED_AT_ONCE:
            self._connection.execute(delete(of).where(key == oldest))
            self.more = True  # the next one, if there is one


def _waits_for_boxes() -> ColumnElement[bool]:
    """Return the condition that boxes of an operation have not ended it; those of which nothing is heard do not count.

    An operation ends when its change is stored for all boxes, which then have yet to answer.
    """
    c = _OPERATION_BOXES.c
    open_ = c.outcome.in_([BoxOutcome.QUEUED.value, BoxOutcome.STORED.value])
    enrolled = (_BOXES.c.device == c.device) & (_BOXES.c.state == BoxState.ENROLLED.value)
    return select(c.device).where(c.operation == _OPERATIONS.c.id, open_, enrolled).exists()
