"""Boxes, their desired documents, and the last message of each kind."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, true, update

from edgegpu_cloud.store.controllers.leases import ALL, of_partitions
from edgegpu_cloud.store.convert import (
    Values,
    box_of,
    box_state_values,
    box_values,
    latest_of,
    latest_values,
    record_of,
    values_of,
)
from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, Revision
from edgegpu_cloud.store.schema import BirthRow, BoxRow, LatestRow, SpecRow, table
from edgegpu_cloud.store.summaries.tables import SummaryTable
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import Json

_BOXES, _SPECS, _LATEST, _BIRTHS = table(BoxRow), table(SpecRow), table(LatestRow), table(BirthRow)

MOST_BLOCKED = 3_500
"""Blocked boxes that a broker is told: 17 bytes each, below mosquitto's `max_packet_size`."""

KEPT_REVISIONS = 100
"""Desired documents of a box that are kept."""

KEPT_BIRTHS = 200
"""Births of a box that are remembered: a replay of one of them does not mean that a journal was put back."""


class BoxTable:
    """The boxes of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool, summaries: SummaryTable) -> None:
        """Use a connection; `hold`: rows that are read here are locked, because they are to be written.

        A new box gets a summary in `summaries`; one that is set aside or forgotten counts as changed there.
        """
        self._connection, self._hold, self._summaries = connection, hold, summaries

    def get(self, devices: Collection[DeviceId]) -> dict[DeviceId, BoxRecord]:
        """Return those of these boxes that exist; a transaction that writes holds them until its end."""
        query = select(_BOXES).where(_BOXES.c.device.in_(devices)).order_by(_BOXES.c.device)
        if self._hold:
            query = query.with_for_update()
        return {box.device: box for box in map(box_of, self._connection.execute(query).mappings().all())}

    def publics(self, devices: Collection[DeviceId]) -> dict[DeviceId, str]:
        """Return the public keys of those of these boxes that are enrolled and not revoked."""
        enrolled = _BOXES.c.state == BoxState.ENROLLED.value
        query = select(_BOXES.c.device, _BOXES.c.public).where(_BOXES.c.device.in_(devices), enrolled)
        return {DeviceId(device): public for device, public in self._connection.execute(query)}

    def newest_key_set(self) -> tuple[int, str]:
        """Return the highest version of the controllers' keys that an enrolled box holds, and that box's name."""
        enrolled = _BOXES.c.state == BoxState.ENROLLED.value
        query = select(_BOXES.c.key_set, _BOXES.c.name).where(enrolled).order_by(_BOXES.c.key_set.desc()).limit(1)
        found = self._connection.execute(query).first()
        return (0, "") if found is None else (found.key_set, found.name)

    def with_exact_name(self, name: str) -> list[DeviceId]:
        """Return the boxes whose id or name is exactly this."""
        query = select(_BOXES.c.device).where((_BOXES.c.device == name) | (_BOXES.c.name == name))
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def with_instance(self, instance: str) -> list[DeviceId]:
        """Return the boxes that have this machine's instance, the one that was enrolled last at the end.

        A transaction that writes is the only one that knows of it until its end: one machine becomes one box.
        """
        if self._hold and self._connection.dialect.name == "postgresql":  # with SQLite there is one that writes
            self._connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(instance))))
        query = select(_BOXES.c.device).where(_BOXES.c.instance == instance).order_by(_BOXES.c.enrolled_at_s)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def with_name_prefix(self, name: str) -> list[DeviceId]:
        """Return the box with this id or name, else those whose id or name begins with it."""
        if found := self.with_exact_name(name):
            return found
        begins = _BOXES.c.device.startswith(name, autoescape=True) | _BOXES.c.name.startswith(name, autoescape=True)
        query = select(_BOXES.c.device).where(begins).order_by(_BOXES.c.name)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def add(self, box: BoxRecord) -> None:
        """Write a new box."""
        self._connection.execute(insert(_BOXES).values(box_values(box)))
        self._summaries.add(box.device, box.labels)

    def put(self, boxes: Iterable[BoxRecord]) -> None:
        """Update boxes."""
        self._put([box_values(box) for box in boxes])

    def put_state(self, boxes: Iterable[BoxRecord]) -> None:
        """Update of boxes what a controller and a request change: their numbers, not who they are.

        Half of a row's columns and most of its indexes stay untouched.
        """
        self._put([box_state_values(box) for box in boxes])

    def _put(self, rows: Sequence[Values]) -> None:
        if rows:
            statement = update(_BOXES).where(_BOXES.c.device == bindparam("at_device"))
            self._connection.execute(statement, [{"at_device": row.pop("device"), **row} for row in rows])

    def set_aside(self, device: DeviceId) -> None:
        """Mark a box as set aside, whatever its row holds."""
        values = {"state": BoxState.SET_ASIDE.value, "online": False, "look_at_s": None}
        self._connection.execute(update(_BOXES).where(_BOXES.c.device == device).values(values))
        self._summaries.mark([device])

    def stop_asking(self, device: DeviceId) -> None:
        """Stop asking a box that is behind its revision until it is heard again, whatever its row holds."""
        self._connection.execute(update(_BOXES).where(_BOXES.c.device == device).values(look_at_s=None))

    def enrolled(self, held: Collection[int] = ALL) -> list[DeviceId]:
        """Return the enrolled boxes of some partitions, by name."""
        mine = (_BOXES.c.state == BoxState.ENROLLED.value) & self._of(held)
        query = select(_BOXES.c.device).where(mine).order_by(_BOXES.c.name)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def blocked(self, *, limit: int = MOST_BLOCKED) -> list[DeviceId]:
        """Return the boxes that are blocked, by device id."""
        query = select(_BOXES.c.device).where(_BOXES.c.state == BoxState.BLOCKED.value)
        return [
            DeviceId(device)
            for device in self._connection.execute(query.order_by(_BOXES.c.device).limit(limit)).scalars()
        ]

    def forget(self, device: DeviceId) -> None:
        """Drop a box with its documents, last messages and births; other rows that refer to it have to be gone."""
        self._summaries.forget(device)
        for rows in (_SPECS, _LATEST, _BIRTHS, _BOXES):
            self._connection.execute(delete(rows).where(rows.c.device == device))

    @staticmethod
    def _of(held: Collection[int]) -> ColumnElement[bool]:
        return true() if ALL.issubset(held) else _BOXES.c.partition.in_(sorted(held))

    def touched_since(self, counter: int, *, limit: int, held: Collection[int] = ALL) -> list[tuple[int, DeviceId]]:
        """Return boxes that a person has changed since the counter had this value, oldest change first."""
        query = select(_BOXES.c.touched, _BOXES.c.device).where(_BOXES.c.touched > counter, self._of(held))
        rows = self._connection.execute(query.order_by(_BOXES.c.touched, _BOXES.c.device).limit(limit))
        return [(touched, DeviceId(device)) for touched, device in rows]

    def due_to_be_asked(self, now_s: float, *, limit: int, held: Collection[int] = ALL) -> list[DeviceId]:
        """Return boxes that are behind their revision and due to be asked."""
        due = (_BOXES.c.look_at_s <= now_s) & self._of(held)
        query = select(_BOXES.c.device).where(due).order_by(_BOXES.c.look_at_s).limit(limit)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    # desired documents

    def spec(self, device: DeviceId, rev: int) -> Revision | None:
        """Return a desired document."""
        query = select(_SPECS).where(_SPECS.c.device == device, _SPECS.c.rev == rev)
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else record_of(Revision, row)

    def revisions(self, device: DeviceId) -> list[Revision]:
        """Return the desired documents of a box that are kept, oldest first."""
        query = select(_SPECS).where(_SPECS.c.device == device).order_by(_SPECS.c.rev)
        return [record_of(Revision, row) for row in self._connection.execute(query).mappings().all()]

    def specs(self, revs: Collection[tuple[DeviceId, int]]) -> dict[DeviceId, Json]:
        """Return the documents of many boxes, one of each."""
        wanted = dict(revs)
        query = select(_SPECS.c.device, _SPECS.c.rev, _SPECS.c.spec).where(
            _SPECS.c.device.in_(list(wanted)), _SPECS.c.rev.in_(sorted(set(wanted.values())))
        )
        return {
            DeviceId(device): spec
            for device, rev, spec in self._connection.execute(query).all()
            if wanted[device] == rev
        }

    def add_spec(self, device: DeviceId, revision: Revision, *, change: int) -> None:
        """Store a desired document, with the number of the change by a person that it is."""
        self.add_specs([(device, revision)], change=change)

    def add_specs(self, revisions: Sequence[tuple[DeviceId, Revision]], *, change: int) -> None:
        """Store desired documents of boxes, with the number of the last change by a person that they are."""
        rows = [{"device": device, **values_of(one), "changed": change} for device, one in revisions]
        self._connection.execute(insert(_SPECS), rows)

    def first_revisions_after(self, devices: Collection[DeviceId], change: int) -> dict[DeviceId, int]:
        """Return of each box the first kept revision of its document that was made after a change of this number.

        Whoever reads the number has all changes up to it: it is counted under a lock (`NoteTable.changed`).
        """
        query = select(_SPECS.c.device, func.min(_SPECS.c.rev)).group_by(_SPECS.c.device)
        query = query.where(_SPECS.c.device.in_(list(devices)), _SPECS.c.changed > change)
        return {DeviceId(device): int(rev) for device, rev in self._connection.execute(query).all()}

    def forget_specs(self, *, held: Collection[int] = ALL) -> None:
        """Drop documents that are more than `KEPT_REVISIONS` behind the current one."""
        spec_rev = select(_BOXES.c.spec_rev).where(_BOXES.c.device == _SPECS.c.device).scalar_subquery()
        old = (_SPECS.c.rev < spec_rev - KEPT_REVISIONS) & of_partitions(_SPECS.c.device, held)
        self._connection.execute(delete(_SPECS).where(old))

    # last messages

    def latest(
        self, devices: Collection[DeviceId], kinds: Collection[TopicKind]
    ) -> dict[tuple[DeviceId, TopicKind], Latest]:
        """Return the last messages of these kinds."""
        query = select(_LATEST).where(_LATEST.c.device.in_(devices), _LATEST.c.kind.in_([kind.value for kind in kinds]))
        found = map(latest_of, self._connection.execute(query).mappings().all())
        return {(one.device, one.kind): one for one in found}

    def add_latest(self, latest: Sequence[Latest]) -> None:
        """Insert messages of kinds that had none."""
        if latest:
            self._connection.execute(insert(_LATEST), [latest_values(one) for one in latest])

    def put_latest(self, latest: Sequence[Latest]) -> None:
        """Update messages of kinds that had one."""
        if not latest:
            return
        rows = []
        for one in latest:
            values = latest_values(one)
            rows.append({"at_device": values.pop("device"), "at_kind": values.pop("kind"), **values})
        at = (_LATEST.c.device == bindparam("at_device")) & (_LATEST.c.kind == bindparam("at_kind"))
        self._connection.execute(update(_LATEST).where(at), rows)

    def has_had(self, device: DeviceId, enrolment: int, epoch: Epoch) -> bool:
        """Whether this birth is remembered."""
        where = (_BIRTHS.c.device == device) & (_BIRTHS.c.enrolment == enrolment) & (_BIRTHS.c.count == epoch.count)
        query = select(_BIRTHS.c.number).where(where & (_BIRTHS.c.nonce == epoch.nonce)).limit(1)
        return self._connection.execute(query).first() is not None

    def add_births(self, births: Sequence[tuple[DeviceId, int, Epoch, float]]) -> None:
        """Store births (box, enrolment, epoch, time); the oldest of each box are dropped."""
        if not births:
            return
        rows = [
            {"device": device, "enrolment": enrolment, "at_s": at_s, **values_of(epoch)}
            for device, enrolment, epoch, at_s in births
        ]
        self._connection.execute(insert(_BIRTHS), rows)
        for device, enrolment, epoch, _ in births:
            if epoch.count > KEPT_BIRTHS:
                old = (_BIRTHS.c.enrolment == enrolment) & (_BIRTHS.c.count <= epoch.count - KEPT_BIRTHS)
                self._connection.execute(delete(_BIRTHS).where(_BIRTHS.c.device == device, old))
