"""Commands, their history, and the ends of commands that this store does not know."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from edgegpu_cloud.store.controllers.leases import ALL, of_partitions
from edgegpu_cloud.store.convert import command_of, command_values, new_command_values, record_of, values_of
from edgegpu_cloud.store.labels import in_scope
from edgegpu_cloud.store.records import CommandHistoryLine, LabelTerm, Orphan, StoredCommand
from edgegpu_cloud.store.schema import CommandRow, HistoryRow, OrphanRow, table
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.states import CommandState

_COMMANDS, _HISTORY, _ORPHANS = table(CommandRow), table(HistoryRow), table(OrphanRow)

KEPT_ORPHANS = 1_000
"""Orphans of one box that are kept; all of them are receipted."""


class CommandTable:
    """The commands of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _of(self, *where: object, limit: int | None = None) -> list[StoredCommand]:
        query = select(_COMMANDS).where(*where).order_by(_COMMANDS.c.number).limit(limit)  # type: ignore[arg-type]
        return [command_of(row) for row in self._connection.execute(query).mappings().all()]

    def get(self, ids: Collection[CommandId]) -> dict[CommandId, StoredCommand]:
        """Return those of these commands that exist."""
        return {one.id: one for one in self._of(_COMMANDS.c.id.in_(ids))}

    def beginning(self, prefix: str, scope: Sequence[LabelTerm] = ()) -> list[CommandId]:
        """Return the ids that begin with a prefix, of boxes in a scope, ten at most."""
        begins = _COMMANDS.c.id.startswith(prefix, autoescape=True)
        query = select(_COMMANDS.c.id).where(begins, *in_scope(_COMMANDS.c.device, scope)).limit(10)
        return [CommandId(id_) for id_ in self._connection.execute(query).scalars()]

    def of(
        self, device: DeviceId | None, *, limit: int, before: str = "", scope: Sequence[LabelTerm] = ()
    ) -> list[StoredCommand]:
        """Return the last commands to a box, or to all in a scope, newest first; those before the one with this id."""
        query = select(_COMMANDS).where(*in_scope(_COMMANDS.c.device, scope))
        query = query.order_by(_COMMANDS.c.number.desc()).limit(limit)
        if device is not None:
            query = query.where(_COMMANDS.c.device == device)
        if before:
            number = select(_COMMANDS.c.number).where(_COMMANDS.c.id == before).scalar_subquery()
            query = query.where(_COMMANDS.c.number < number)
        return [command_of(row) for row in self._connection.execute(query).mappings().all()]

    def last_with_data(self, device: DeviceId, op: str) -> StoredCommand | None:
        """Return the newest command of an op to a box that has ended well, which is when a box sends data."""
        c = _COMMANDS.c
        done = (c.device == device) & c.ended & (c.op == op) & (c.state == CommandState.SUCCEEDED.value)
        query = select(_COMMANDS).where(done)
        row = self._connection.execute(query.order_by(c.number.desc()).limit(1)).mappings().first()
        return None if row is None else command_of(row)

    def open(self, device: DeviceId) -> list[StoredCommand]:
        """Return all commands to a box that have not ended, oldest first."""
        return self._of(_COMMANDS.c.device == device, ~_COMMANDS.c.ended)

    def open_count(self, devices: Collection[DeviceId]) -> dict[DeviceId, int]:
        """Return how many commands to these boxes have not ended, by box; those that have none are left out."""
        c = _COMMANDS.c
        query = select(c.device, func.count()).where(c.device.in_(devices), ~c.ended).group_by(c.device)
        return {DeviceId(device): number for device, number in self._connection.execute(query)}

    def by_state(self, *, ended_since_s: float) -> dict[str, int]:
        """Return how many commands have each state: those under way, and those that ended since; none yet: WAITING."""
        c = _COMMANDS.c
        query = select(c.state, func.count()).where(~c.ended | (c.ended_at_s >= ended_since_s)).group_by(c.state)
        return {state or "WAITING": number for state, number in self._connection.execute(query)}

    def number_since(self, device: DeviceId, op: OpName, at_s: float) -> int:
        """Return how many commands of this op a box may have worked on since then: open, or ended later."""
        c = _COMMANDS.c
        under_way = ~c.ended | (c.ended_at_s > at_s)
        query = select(func.count()).where(c.device == device, c.op == op, under_way)
        return int(self._connection.execute(query).scalar_one())

    def add(self, *commands: StoredCommand) -> None:
        """Write new commands."""
        self._connection.execute(insert(_COMMANDS), [new_command_values(one) for one in commands])

    def put(self, commands: Iterable[StoredCommand]) -> None:
        """Update commands."""
        rows = [{"at_id": one.id, **command_values(one)} for one in commands]
        if rows:
            self._connection.execute(update(_COMMANDS).where(_COMMANDS.c.id == bindparam("at_id")), rows)

    # sending

    def due_boxes(self, now_s: float, *, limit: int, held: Collection[int] = ALL) -> list[DeviceId]:
        """Return boxes with a command that is to be sent."""
        due = (_COMMANDS.c.next_at_s <= now_s) & of_partitions(_COMMANDS.c.device, held)
        query = select(_COMMANDS.c.device).where(due).distinct().limit(limit)
        return [DeviceId(device) for device in self._connection.execute(query).scalars()]

    def due(self, devices: Collection[DeviceId], now_s: float, *, limit: int) -> list[StoredCommand]:
        """Return the commands to these boxes that are to be sent, oldest first."""
        return self._of(_COMMANDS.c.device.in_(devices), _COMMANDS.c.next_at_s <= now_s, limit=limit)

    def outstanding(self, devices: Collection[DeviceId]) -> dict[DeviceId, tuple[int, int]]:
        """Return, by box, the lowest seq of a command that has not ended, and how many such there are."""
        c = _COMMANDS.c
        query = select(c.device, func.min(c.seq), func.count()).where(c.device.in_(devices), ~c.ended)
        rows = self._connection.execute(query.where(c.seq.is_not(None)).group_by(c.device))
        return {DeviceId(device): (lowest, number) for device, lowest, number in rows}

    def wake(self, devices: Collection[DeviceId]) -> None:
        """Make all open commands to these boxes due: the boxes were born, or can be signed for."""
        c = _COMMANDS.c
        self._connection.execute(update(_COMMANDS).where(c.device.in_(devices), ~c.ended).values(next_at_s=0.0))

    def park(self, devices: Collection[DeviceId]) -> None:
        """Let the commands to these boxes wait until they are woken."""
        c = _COMMANDS.c
        where = c.device.in_(devices) & c.next_at_s.is_not(None)
        self._connection.execute(update(_COMMANDS).where(where).values(next_at_s=None))

    def park_all(self, held: Collection[int] = ALL) -> None:
        """Let all commands to boxes of some partitions wait: who takes those knows the age of no birth."""
        where = _COMMANDS.c.next_at_s.is_not(None) & of_partitions(_COMMANDS.c.device, held)
        self._connection.execute(update(_COMMANDS).where(where).values(next_at_s=None))

    def park_unsigned(self, device: DeviceId) -> None:
        """Let commands wait that were never signed: too many are on their way to this box."""
        c = _COMMANDS.c
        where = (c.device == device) & c.next_at_s.is_not(None) & c.seq.is_(None)
        self._connection.execute(update(_COMMANDS).where(where).values(next_at_s=None))

    def wake_unsigned(self, device: DeviceId, *, limit: int) -> None:
        """Make the oldest of the commands due that wait to be signed."""
        c = _COMMANDS.c
        waiting = select(c.number).where(c.device == device, ~c.ended, c.seq.is_(None), c.next_at_s.is_(None))
        numbers = self._connection.execute(waiting.order_by(c.number).limit(limit)).scalars().all()
        if numbers:
            self._connection.execute(update(_COMMANDS).where(c.number.in_(numbers)).values(next_at_s=0.0))

    def waiting(self, devices: Collection[DeviceId]) -> list[DeviceId]:
        """Return those of these boxes that have a waiting command which was never signed."""
        c = _COMMANDS.c
        query = select(c.device).where(c.device.in_(devices), ~c.ended, c.seq.is_(None), c.next_at_s.is_(None))
        return [DeviceId(device) for device in self._connection.execute(query.distinct()).scalars()]

    def ended_since(self, at_s: float, devices: Collection[DeviceId]) -> dict[DeviceId, list[CommandId]]:
        """Return the ids of commands to these boxes that have ended since then, by box."""
        ended = (_COMMANDS.c.ended_at_s >= at_s) & _COMMANDS.c.device.in_(devices)
        query = select(_COMMANDS.c.device, _COMMANDS.c.id).where(ended)
        found: dict[DeviceId, list[CommandId]] = {}
        for device, id_ in self._connection.execute(query.order_by(_COMMANDS.c.number)):
            found.setdefault(DeviceId(device), []).append(CommandId(id_))
        return found

    def forget_box(self, device: DeviceId) -> None:
        """Drop all commands to a box, their history, and its orphans."""
        ids = select(_COMMANDS.c.id).where(_COMMANDS.c.device == device)
        self._connection.execute(delete(_HISTORY).where(_HISTORY.c.command.in_(ids)))
        self._connection.execute(delete(_COMMANDS).where(_COMMANDS.c.device == device))
        self._connection.execute(delete(_ORPHANS).where(_ORPHANS.c.device == device))

    # history and orphans

    def heard(self, lines: Sequence[CommandHistoryLine]) -> None:
        """Write lines of history."""
        if lines:
            self._connection.execute(insert(_HISTORY), [values_of(one) | {"state": one.state.value} for one in lines])

    def history(self, id_: CommandId) -> list[CommandHistoryLine]:
        """Return the history of a command, oldest first."""
        query = select(_HISTORY).where(_HISTORY.c.command == id_).order_by(_HISTORY.c.number)
        return [
            record_of(CommandHistoryLine, row, state=CommandState(row["state"]))
            for row in self._connection.execute(query).mappings().all()
        ]

    def histories(self, ids: Collection[CommandId]) -> dict[CommandId, list[CommandHistoryLine]]:
        """Return the histories of commands, oldest line first; those that have none are left out."""
        query = select(_HISTORY).where(_HISTORY.c.command.in_(ids)).order_by(_HISTORY.c.number)
        found: dict[CommandId, list[CommandHistoryLine]] = {}
        for row in self._connection.execute(query).mappings().all():
            line = record_of(CommandHistoryLine, row, state=CommandState(row["state"]))
            found.setdefault(line.command, []).append(line)
        return found

    def add_orphans(self, orphans: Sequence[Orphan]) -> None:
        """Store the ends of unknown commands; the first end of each stays, the oldest of a box are dropped."""
        for one in orphans:
            there = (_ORPHANS.c.device == one.device) & (_ORPHANS.c.id == one.id)
            if self._connection.execute(select(_ORPHANS.c.id).where(there)).first() is None:
                self._connection.execute(insert(_ORPHANS).values(values_of(one) | {"state": one.state.value}))
        for device in {one.device for one in orphans}:
            newest = select(_ORPHANS.c.id).where(_ORPHANS.c.device == device).order_by(_ORPHANS.c.at_s.desc())
            over = self._connection.execute(newest.offset(KEPT_ORPHANS)).scalars().all()
            if over:
                self._connection.execute(delete(_ORPHANS).where(_ORPHANS.c.device == device, _ORPHANS.c.id.in_(over)))

    def orphans(self, device: DeviceId | None = None) -> list[Orphan]:
        """Return the orphans of a box, or of all, oldest first."""
        query = select(_ORPHANS).order_by(_ORPHANS.c.at_s, _ORPHANS.c.id)
        if device is not None:
            query = query.where(_ORPHANS.c.device == device)
        return [
            record_of(Orphan, row, state=CommandState(row["state"]))
            for row in self._connection.execute(query).mappings().all()
        ]
