"""Rollouts and their boxes in the store."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from edgegpu_cloud.phrases import phrase_json, read_phrase
from edgegpu_cloud.store.convert import Values, record_of
from edgegpu_cloud.store.records import BoxState
from edgegpu_cloud.store.rollouts.planned import PlanQuery, members_query, planned
from edgegpu_cloud.store.rollouts.records import (
    BAD_HEALTH,
    EVERY_ROLLOUT,
    RolloutBoxRecord,
    RolloutBoxState,
    RolloutFilter,
    RolloutRecord,
    RolloutState,
    WaveCounts,
)
from edgegpu_cloud.store.rollouts.schema import RolloutBoxRow, RolloutRow
from edgegpu_cloud.store.schema import BoxRow, CommandRow, LatestRow, table
from edgegpu_cloud.store.summaries.box_list import BoxQuery, boxes_of, devices_where
from edgegpu_cloud.store.summaries.schema import SummaryRow
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.topics import TopicKind

_ROLLOUTS, _OF = table(RolloutRow), table(RolloutBoxRow)
_BOXES, _COMMANDS, _LATEST = table(BoxRow), table(CommandRow), table(LatestRow)
_SUMMARIES = table(SummaryRow)

B = RolloutBoxState
RETURNABLE = (B.APPLIED, B.REJECTED, B.FAILED)
"""Boxes that have ended, and get back what they had where the rollout has changed it."""
_ENDED = (*RETURNABLE, B.SKIPPED)
_SEARCHED = ("policy", "isolation", "exclude", "unit_mib", "version", "url")
"""Of what a rollout changes, the values that people look for; apps are in the subject."""
_PLANNED = ("device", "name", "position", "others")
"""What a plan says of each box; all else of a new rollout's boxes is the same."""


class RolloutTable:
    """The rollouts of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: a rollout that is read here is locked, because it is to be written."""
        self._connection, self._hold = connection, hold
        self.moved_on = False
        """Whether a rollout was begun or has moved on in this transaction: no box need have changed with it."""

    # rollouts

    def add(self, rollout: RolloutRecord, plan: PlanQuery) -> tuple[int, int]:
        """Write a new rollout with the boxes of a plan, all in one wave; return its number, and how many they are.

        Rollouts of one subject are written one after the other, so each sees the boxes of those before.
        """
        if self._connection.dialect.name == "postgresql":  # with SQLite there is one that writes
            self._connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(rollout.subject))))
        values = asdict(rollout) | {"state": rollout.state.value, "reason_phrase": phrase_json(rollout.reason)}
        del values["number"]
        done = self._connection.execute(insert(_ROLLOUTS).values(values))
        self.moved_on = True
        number = int(done.inserted_primary_key[0])  # type: ignore[index]  # one row, with a key
        of = planned(plan)
        new = RolloutBoxRecord(rollout=number, device=DeviceId(""), name="", position=0, wave=0, since_s=rollout.at_s)
        same = {name: value for name, value in _box_values(new).items() if value is not None and name not in _PLANNED}
        of_all = (literal(value, _OF.c[name].type).label(name) for name, value in same.items())
        found = select(of.c.device, of.c.name, of.c.position, self._others(plan, of), *of_all)
        self._connection.execute(insert(_OF).from_select([*_PLANNED, *same], found))
        count = select(func.count()).where(_OF.c.rollout == number)
        return number, int(self._connection.execute(count).scalar_one())

    def _others(self, plan: PlanQuery, of: Subquery) -> ColumnElement[Any]:
        """Return the devices of the cluster of a planned box, less its own, as the list that is stored."""
        nobody = literal([], _OF.c.others.type)
        if not plan.one_of_each_cluster:
            return nobody
        b, s = _BOXES.c, _SUMMARIES.c
        is_sqlite = self._connection.dialect.name == "sqlite"
        listed: ColumnElement[Any] = (
            func.json_group_array(b.device) if is_sqlite else func.coalesce(func.json_agg(b.device), nobody)
        )
        beside = (s.cluster == of.c.cluster, of.c.cluster != "", b.device != of.c.device)
        return boxes_of(select(listed), members_query(plan)).where(*beside).correlate(of).scalar_subquery()

    def divide(self, number: int, sizes: Sequence[int]) -> None:
        """Divide the boxes of a new rollout into waves of these sizes, in its order."""
        self._connection.execute(
            update(_OF).where(_OF.c.rollout == number).values(wave=_wave_at(_OF.c.position, sizes))
        )
        self._connection.execute(update(_ROLLOUTS).where(_ROLLOUTS.c.number == number).values(waves=len(sizes)))

    def get(self, number: int) -> RolloutRecord | None:
        """Return a rollout; a transaction that writes holds it until its end: no other process works on it then."""
        query = select(_ROLLOUTS).where(_ROLLOUTS.c.number == number)
        found = self._connection.execute(query.with_for_update() if self._hold else query).mappings().one_or_none()
        return None if found is None else _rollout(found)

    def put(self, rollout: RolloutRecord) -> None:
        """Update where a rollout stands; what it changes, and how, never changes."""
        names = ("wave", "waived", "held", "returns", "reason", "ended_at_s")
        values: Values = {name: getattr(rollout, name) for name in names}
        values |= {"state": rollout.state.value, "reason_phrase": phrase_json(rollout.reason)}
        self._connection.execute(update(_ROLLOUTS).where(_ROLLOUTS.c.number == rollout.number).values(values))
        self.moved_on = True

    def all(
        self,
        *,
        where: RolloutFilter = EVERY_ROLLOUT,
        limit: int,
        before: int | None = None,
        within: BoxQuery | None = None,
    ) -> list[RolloutRecord]:
        """Return the last rollouts, newest first.

        Args:
            where: those that are asked for.
            limit: how many at most.
            before: only those with lower numbers.
            within: only those all of whose boxes are among these.
        """
        query = select(_ROLLOUTS).where(*_matching(where)).order_by(_ROLLOUTS.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(_ROLLOUTS.c.number < before)
        if within is not None:
            query = query.where(~self._outside(within).exists())
        rows = self._connection.execute(query).mappings().all()
        return [_rollout(row) for row in rows]

    def is_within(self, number: int, within: BoxQuery) -> bool:
        """Whether all boxes of a rollout are among these."""
        outside = self._outside(within).where(_ROLLOUTS.c.number == number).correlate(None)
        return self._connection.execute(outside.limit(1)).first() is None

    def _outside(self, within: BoxQuery) -> Select[tuple[str]]:
        """Return the boxes of a rollout that are not among these; a forgotten box is not."""
        outside = _OF.c.device.not_in(devices_where(within))
        return select(_OF.c.device).where(_OF.c.rollout == _ROLLOUTS.c.number, outside)

    def active(self) -> list[int]:
        """Return the numbers of the rollouts that have not ended, oldest first; paused ones too: their boxes end."""
        open_ = [state.value for state in RolloutState if not state.ended]
        query = select(_ROLLOUTS.c.number).where(_ROLLOUTS.c.state.in_(open_)).order_by(_ROLLOUTS.c.number)
        return [int(number) for number in self._connection.execute(query).scalars()]

    def done_since(self, number: int, subject: str) -> int | None:
        """Return the last rollout of the same subject that was started later and has ended well; None: none."""
        c = _ROLLOUTS.c
        later = (c.subject == subject, c.number > number, c.state == RolloutState.DONE.value)
        found: int | None = self._connection.execute(select(func.max(c.number)).where(*later)).scalar_one()
        return found

    def active_beside(self, number: int, subject: str) -> tuple[int, str] | None:
        """Return number and box of another rollout under way that changes the same thing on a box of this one."""
        open_ = [state.value for state in RolloutState if not state.ended]
        mine = _OF.alias()
        query = (
            select(_OF.c.rollout, _OF.c.name)
            .join(_ROLLOUTS, _ROLLOUTS.c.number == _OF.c.rollout)
            .join(mine, (mine.c.device == _OF.c.device) & (mine.c.rollout == number))
            .where(_ROLLOUTS.c.subject == subject, _ROLLOUTS.c.state.in_(open_), _OF.c.rollout != number)
        )
        found = self._connection.execute(query.limit(1)).first()
        return None if found is None else (int(found[0]), found[1])

    # the boxes of a rollout

    def counts(self, number: int, waves: int, now_s: float) -> list[WaveCounts]:
        """Return the counts of each wave of a rollout."""
        c = _OF.c
        due = and_(c.state == B.RETRYING.value, c.next_try_at_s <= now_s)
        returnable = and_(c.changed, c.state.in_([state.value for state in RETURNABLE]))
        query = (
            select(c.wave, c.state, func.count(), _number(due), _number(returnable), func.max(c.since_s))
            .where(c.rollout == number)
            .group_by(c.wave, c.state)
        )
        states: list[dict[RolloutBoxState, int]] = [{} for _ in range(waves)]
        others = [[0, 0, 0.0] for _ in range(waves)]
        for wave, state, count, is_due, is_returnable, since_s in self._connection.execute(query).all():
            states[wave][RolloutBoxState(state)] = count
            others[wave][0] += is_due
            others[wave][1] += is_returnable
            if state in _ENDED:
                others[wave][2] = max(others[wave][2], since_s)
        return [
            WaveCounts(states=found, due=int(due_), returnable=int(back), ended_s=ended_s)
            for found, (due_, back, ended_s) in zip(states, others, strict=True)
        ]

    def boxes(
        self,
        number: int,
        states: Collection[RolloutBoxState] = (),
        *,
        limit: int,
        offset: int = 0,
        wave: int | None = None,
        changed: bool | None = None,
        due_s: float | None = None,
    ) -> list[RolloutBoxRecord]:
        """Return boxes of a rollout in its order.

        Args:
            number: of the rollout.
            states: those that count; empty: all.
            limit: how many at most.
            offset: how many to leave out before.
            wave: only those of this wave.
            changed: only those that the rollout has changed, or has not.
            due_s: only those whose next try is due by then.
        """
        c = _OF.c
        query = select(_OF).where(c.rollout == number).order_by(c.position).limit(limit).offset(offset)
        if states:
            query = query.where(c.state.in_([state.value for state in states]))
        if wave is not None:
            query = query.where(c.wave == wave)
        if changed is not None:
            query = query.where(c.changed == changed)
        if due_s is not None:
            query = query.where(c.next_try_at_s <= due_s)
        return self._read(query)

    def changed_count(self, number: int, states: Collection[RolloutBoxState]) -> int:
        """Return how many boxes in these states a rollout has changed."""
        query = select(func.count()).where(_OF.c.rollout == number, _OF.c.changed, _OF.c.state.in_(states))
        return self._connection.execute(query).scalar_one()

    def put_boxes(self, boxes: Iterable[RolloutBoxRecord]) -> None:
        """Update boxes of rollouts."""
        rows = [{"at_rollout": box.rollout, "at_device": box.device, **_box_values(box)} for box in boxes]
        if rows:
            at = (_OF.c.rollout == bindparam("at_rollout")) & (_OF.c.device == bindparam("at_device"))
            self._connection.execute(update(_OF).where(at), rows)
            self.moved_on = True

    def of_box(self, device: DeviceId, *, limit: int) -> list[RolloutBoxRecord]:
        """Return where a box stands in the last rollouts that it was in, newest first."""
        return self._read(select(_OF).where(_OF.c.device == device).order_by(_OF.c.rollout.desc()).limit(limit))

    # boxes to which something has happened

    def maybe_changed(self, number: int, *, late_s: float, limit: int) -> list[RolloutBoxRecord]:
        """Return boxes that are CHANGING and may have ended: their revision is settled, they are gone, or late.

        Those that were begun before `late_s` are late.
        """
        settled = _BOXES.c.applied_rev >= _OF.c.rev
        return self._of_boxes(number, B.CHANGING, settled | self._gone() | (_OF.c.since_s < late_s), limit)

    def maybe_returned(
        self, number: int, *, late_s: float, given_up_s: float, heard_s: float, limit: int
    ) -> list[RolloutBoxRecord]:
        """Return boxes that are RETURNING and may have ended: as `maybe_changed`.

        One that is not heard since `heard_s` is late only if it was begun before `given_up_s`.
        """
        since = _OF.c.since_s
        late = (since < given_up_s) | (self._present(heard_s) & (since < late_s))
        settled = _BOXES.c.applied_rev >= _OF.c.rev
        return self._of_boxes(number, B.RETURNING, settled | self._gone() | late, limit)

    def ended_by_command(self, number: int, *, late_s: float, limit: int) -> list[RolloutBoxRecord]:
        """Return boxes that are CHANGING and may have ended: their command has, they are gone, or they are late."""
        ids = select(_COMMANDS.c.id).where(_COMMANDS.c.id == _OF.c.command, _COMMANDS.c.ended)
        return self._of_boxes(number, B.CHANGING, ids.exists() | self._gone() | (_OF.c.since_s < late_s), limit)

    def newly_reported(self, number: int, wave: int, *, limit: int) -> list[RolloutBoxRecord]:
        """Return changed, applied boxes of a wave that have reported since they were checked last."""
        told = select(_LATEST.c.device).where(
            _LATEST.c.device == _OF.c.device,
            _LATEST.c.kind == TopicKind.REPORTED.value,
            _LATEST.c.at_s > _OF.c.checked_s,
        )
        where = (_OF.c.wave == wave) & _OF.c.changed & told.exists()
        return self._of_boxes(number, B.APPLIED, where, limit)

    def upgrade_lost(self, number: int, wave: int, *, limit: int) -> list[RolloutBoxRecord]:
        """Return upgraded boxes of a wave that have said since that they run another version, or are not well.

        Those that were not well before the upgrade are left out.
        """
        version = select(_ROLLOUTS.c.change["version"].as_string()).where(_ROLLOUTS.c.number == number)
        s, health = _SUMMARIES.c, func.coalesce(_OF.c.before["health"].as_string(), "")
        other = s.agent.not_in(["", version.scalar_subquery()]) & self._said_since(TopicKind.STATUS)
        unwell = (s.health == BAD_HEALTH) & (health != BAD_HEALTH) & self._said_since(TopicKind.HEALTH)
        lost = select(s.device).where(s.device == _OF.c.device, other | unwell).correlate(_OF)
        return self._of_boxes(number, B.APPLIED, (_OF.c.wave == wave) & _OF.c.changed & lost.exists(), limit)

    def _said_since(self, kind: TopicKind) -> ColumnElement[bool]:
        said = select(_LATEST.c.device).where(
            _LATEST.c.device == _OF.c.device, _LATEST.c.kind == kind.value, _LATEST.c.at_s > _OF.c.since_s
        )
        return said.correlate(_OF).exists()  # it stands two queries deep: by itself it correlates with one

    def offline(self, number: int, wave: int, *, heard_s: float, limit: int) -> list[RolloutBoxRecord]:
        """Return boxes of the waves up to this one that are queued, and not connected or not heard since then."""
        enrolled = _BOXES.c.state == BoxState.ENROLLED.value
        where = (_OF.c.wave <= wave) & enrolled & ~self._present(heard_s)
        return self._of_boxes(number, B.QUEUED, where, limit)

    def back(self, number: int, *, heard_s: float, limit: int) -> list[RolloutBoxRecord]:
        """Return boxes that are AWAY, and there again."""
        return self._of_boxes(number, B.AWAY, self._present(heard_s), limit)

    def gone(self, number: int, state: RolloutBoxState, *, limit: int) -> list[RolloutBoxRecord]:
        """Return boxes in a state that are revoked, set aside or forgotten."""
        return self._of_boxes(number, state, self._gone(), limit)

    def _of_boxes(
        self, number: int, state: RolloutBoxState, where: ColumnElement[bool], limit: int
    ) -> list[RolloutBoxRecord]:
        query = (
            select(_OF)
            .outerjoin(_BOXES, _BOXES.c.device == _OF.c.device)
            .where(_OF.c.rollout == number, _OF.c.state == state.value, where)
        )
        return self._read(query.order_by(_OF.c.position).limit(limit))

    def _gone(self) -> ColumnElement[bool]:
        return or_(_BOXES.c.device.is_(None), _BOXES.c.state != BoxState.ENROLLED.value)

    def _present(self, heard_s: float) -> ColumnElement[bool]:
        enrolled = _BOXES.c.state == BoxState.ENROLLED.value
        return and_(enrolled, _BOXES.c.online, _BOXES.c.seen_at_s > heard_s, ~_BOXES.c.restored)

    def _read(self, query: Select[tuple[object, ...]]) -> list[RolloutBoxRecord]:
        return [
            record_of(
                RolloutBoxRecord,
                row,
                device=DeviceId(row["device"]),
                state=RolloutBoxState(row["state"]),
                command=CommandId(row["command"]) if row["command"] else None,
                others=tuple(DeviceId(one) for one in row["others"]),
                message=read_phrase(row["message"], row["message_phrase"]),
            )
            for row in self._connection.execute(query).mappings().all()
        ]


def _wave_at(position: ColumnElement[int], sizes: Sequence[int]) -> ColumnElement[int]:
    """Return the wave of the box at a position: waves of one size that follow each other are one term of it."""
    terms, begin, wave = list[tuple[ColumnElement[bool], ColumnElement[int]]](), 0, 0
    for size, same in groupby(sizes):
        number = sum(1 for _ in same)
        terms.append((position < begin + number * size, (position - begin) // size + wave))
        begin, wave = begin + number * size, wave + number
    return case(*terms)


def _matching(where: RolloutFilter) -> Iterator[ColumnElement[bool]]:
    c = _ROLLOUTS.c
    if where.search:
        shown = (c.change[name].as_string() for name in _SEARCHED)
        texts = (text.icontains(where.search, autoescape=True) for text in (c.by, c.subject, *shown))
        yield or_(cast(c.number, Text) == where.search, *texts)
    if where.kind:
        yield c.kind == where.kind
    if where.state is not None:
        yield c.state == where.state.value


def _rollout(row: RowMapping) -> RolloutRecord:
    reason = read_phrase(row["reason"], row["reason_phrase"])
    return record_of(RolloutRecord, row, state=RolloutState(row["state"]), reason=reason)


def _number(which: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((which, 1), else_=0))


def _box_values(box: RolloutBoxRecord) -> Values:
    own = {"state": box.state.value, "others": list(box.others), "message_phrase": phrase_json(box.message)}
    return asdict(box) | own
