"""Boxes, their desired documents, and the last message of each kind."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from edgegpu_cloud.store.convert import box_of, box_values, latest_of, latest_values, record_of
from edgegpu_cloud.store.records import BoxRecord, BoxState, Latest, Revision
from edgegpu_cloud.store.schema import BirthRow, BoxRow, LatestRow, SpecRow, table
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import Json

_BOXES, _SPECS, _LATEST, _BIRTHS = table(BoxRow), table(SpecRow), table(LatestRow), table(BirthRow)

KEPT_REVISIONS = 100
"""Desired documents of a box that are kept."""

KEPT_BIRTHS = 200
"""Births of a box that are remembered: a replay of one of them does not mean that a journal was put back."""


class BoxTable:
    """The boxes of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: rows that are read here are locked, because they are to be written."""
        self._connection, self._hold = connection, hold

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

    def all(self) -> list[BoxRecord]:
        """Return every box, by name."""
        query = select(_BOXES).order_by(_BOXES.c.name)
        return [box_of(row) for row in self._connection.execute(query).mappings().all()]

    def with_exact_name(self, name: str) -> list[DeviceId]:
        """Return the boxes whose id or name is exactly this."""
        query = select(_BOXES.c.device).where((_BOXES.c.device == name) | (_BOXES.c.name == name))
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def with_instance(self, instance: str) -> list[DeviceId]:
        """Return the boxes that have this machine's instance, the one that was enrolled last at the end."""
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

    def put(self, boxes: Iterable[BoxRecord]) -> None:
        """Update boxes."""
        rows = [{"at_device": box.device, **box_values(box)} for box in boxes]
        if rows:
            statement = update(_BOXES).where(_BOXES.c.device == bindparam("at_device"))
            self._connection.execute(statement, rows)

    def set_aside(self, device: DeviceId) -> None:
        """Mark a box as set aside, whatever its row holds."""
        values = {"state": BoxState.SET_ASIDE.value, "online": False, "look_at_s": None}
        self._connection.execute(update(_BOXES).where(_BOXES.c.device == device).values(values))

    def stop_asking(self, device: DeviceId) -> None:
        """Stop asking a box that is behind its revision until it is heard again, whatever its row holds."""
        self._connection.execute(update(_BOXES).where(_BOXES.c.device == device).values(look_at_s=None))

    def enrolled(self) -> list[DeviceId]:
        """Return the enrolled boxes, by name."""
        query = select(_BOXES.c.device).where(_BOXES.c.state == BoxState.ENROLLED.value).order_by(_BOXES.c.name)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def forget(self, device: DeviceId) -> None:
        """Drop a box with its documents, last messages and births; other rows that refer to it have to be gone."""
        for rows in (_SPECS, _LATEST, _BIRTHS, _BOXES):
            self._connection.execute(delete(rows).where(rows.c.device == device))

    def touched_since(self, counter: int, *, limit: int) -> list[tuple[int, DeviceId]]:
        """Return boxes that a person has changed since the counter had this value, oldest change first."""
        query = select(_BOXES.c.touched, _BOXES.c.device).where(_BOXES.c.touched > counter)
        rows = self._connection.execute(query.order_by(_BOXES.c.touched, _BOXES.c.device).limit(limit))
        return [(touched, DeviceId(device)) for touched, device in rows]

    def due_to_be_asked(self, now_s: float, *, limit: int) -> list[DeviceId]:
        """Return boxes that are behind their revision and due to be asked."""
        query = select(_BOXES.c.device).where(_BOXES.c.look_at_s <= now_s).order_by(_BOXES.c.look_at_s).limit(limit)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    # desired documents

    def spec(self, device: DeviceId, rev: int) -> Revision | None:
        """Return a desired document."""
        query = select(_SPECS).where(_SPECS.c.device == device, _SPECS.c.rev == rev)
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else record_of(Revision, row)

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

    def add_spec(self, device: DeviceId, revision: Revision) -> None:
        """Store a desired document."""
        self._connection.execute(insert(_SPECS).values(device=device, **asdict(revision)))

    def forget_specs(self) -> None:
        """Drop documents that are more than `KEPT_REVISIONS` behind the current one."""
        spec_rev = select(_BOXES.c.spec_rev).where(_BOXES.c.device == _SPECS.c.device).scalar_subquery()
        self._connection.execute(delete(_SPECS).where(_SPECS.c.rev < spec_rev - KEPT_REVISIONS))

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
            {"device": device, "enrolment": enrolment, "at_s": at_s, **asdict(epoch)}
            for device, enrolment, epoch, at_s in births
        ]
        self._connection.execute(insert(_BIRTHS), rows)
        for device, enrolment, epoch, _ in births:
            if epoch.count > KEPT_BIRTHS:
                old = (_BIRTHS.c.enrolment == enrolment) & (_BIRTHS.c.count <= epoch.count - KEPT_BIRTHS)
                self._connection.execute(delete(_BIRTHS).where(_BIRTHS.c.device == device, old))
