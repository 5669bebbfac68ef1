"""Leases of partitions, the controllers that hold them, and the time that the boxes of each partition have received."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, text, true, update

from edgegpu_cloud.store.controllers.schema import ControllerRow, PartitionRow, ServerTimeRow
from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.records import PARTITIONS, ControllerBeat, Lease, partition_of
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_sync.ids import DeviceId

_PARTITIONS, _TIMES, _CONTROLLERS = table(PartitionRow), table(ServerTimeRow), table(ControllerRow)
_BOXES = table(BoxRow)

ALL = frozenset(range(PARTITIONS))
"""Every partition: who holds them all needs no condition."""


def of_partitions(device: ColumnElement[str], held: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a column with a box's id names a box of these partitions."""
    if ALL.issubset(held):
        return true()
    return device.in_(select(_BOXES.c.device).where(_BOXES.c.partition.in_(sorted(held))))


class LeaseTable:
    """The leases of one transaction.

    Each statement that changes a holder names the fence that it has seen, so of two controllers that want a partition
    one gets it. `lost` locks the leases that it finds: while a transaction that writes for them is open, nobody takes
    them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[Lease]:
        """Return the leases of all partitions, by number."""
        rows = self._connection.execute(select(_PARTITIONS).order_by(_PARTITIONS.c.number)).all()
        return [Lease(row.number, row.holder, row.fence) for row in rows]

    def lost(self, fences: Mapping[int, int]) -> frozenset[int]:
        """Return those of these partitions whose fence is another by now; the others are held until the end.

        Args:
            fences: by partition, as they were when the caller took the leases.
        """
        c = _PARTITIONS.c
        query = select(c.number, c.fence).where(c.number.in_(sorted(fences))).order_by(c.number)
        stand = {row.number: row.fence for row in self._connection.execute(query.with_for_update(read=True))}
        return frozenset(number for number, fence in fences.items() if stand.get(number) != fence)

    def bound_idle(self, seconds: float) -> None:
        """Let PostgreSQL end this transaction when its process does nothing for so long: a stopped one holds leases.

        SQLite has nothing of the kind: there the others wait until the process goes on, or is killed.
        """
        if self._connection.dialect.name == "postgresql":
            timeout = f"{int(seconds * 1000)}ms"
            self._connection.execute(
                text("SELECT set_config('idle_in_transaction_session_timeout', :timeout, true)"), {"timeout": timeout}
            )

    def give(self, lease: Lease, holder: str) -> int | None:
        """Give a lease, as it was seen, to another holder (empty: nobody); return its new fence, None if it changed."""
        c = _PARTITIONS.c
        statement = update(_PARTITIONS).where(c.number == lease.number, c.fence == lease.fence)
        done = self._connection.execute(statement.values(holder=holder, fence=lease.fence + 1))
        return lease.fence + 1 if done.rowcount else None

    # controllers

    def controllers(self) -> list[ControllerBeat]:
        """Return the controllers that share the boxes, by name; those that died lately are among them."""
        rows = self._connection.execute(select(_CONTROLLERS).order_by(_CONTROLLERS.c.name)).mappings().all()
        return [record_of(ControllerBeat, row) for row in rows]

    def join(self, controller: ControllerBeat) -> None:
        """Write a controller that begins, in the place of a dead one of its name."""
        values = asdict(controller)
        c = _CONTROLLERS.c
        before = select(c.beat).where(c.name == controller.name).with_for_update()
        beat = self._connection.execute(before).scalar_one_or_none()
        if beat is None:
            self._connection.execute(insert(_CONTROLLERS).values(values))
        else:
            anew = values | {"beat": beat + 1}
            self._connection.execute(update(_CONTROLLERS).where(c.name == controller.name).values(anew))

    def beat(self, name: str, instance: str, *, now_s: float) -> bool:
        """Raise a controller's beat; return False where another process has its name by now, or none."""
        c = _CONTROLLERS.c
        mine = (c.name == name) & (c.instance == instance)
        done = self._connection.execute(update(_CONTROLLERS).where(mine).values(beat=c.beat + 1, seen_at_s=now_s))
        return bool(done.rowcount)

    def leave(self, name: str, instance: str) -> None:
        """Remove a controller that ends."""
        c = _CONTROLLERS.c
        self._connection.execute(delete(_CONTROLLERS).where(c.name == name, c.instance == instance))

    def forget_controllers(self, before_s: float, *, live: Collection[str]) -> None:
        """Remove controllers that were seen last before then, by their own clocks, and are not among the live ones."""
        c = _CONTROLLERS.c
        self._connection.execute(delete(_CONTROLLERS).where(c.seen_at_s < before_s, c.name.not_in(live)))

    # the time that boxes receive

    def server_times(self, devices: Iterable[DeviceId], now_s: float) -> dict[DeviceId, int]:
        """Return the time that each of these boxes receives, seconds since 1970: never less than it received before."""
        wanted = {device: partition_of(device) for device in devices}
        numbers, c = sorted(set(wanted.values())), _TIMES.c
        now = int(now_s)
        self._connection.execute(update(_TIMES).where(c.partition.in_(numbers), c.at_s < now).values(at_s=now))
        query = select(c.partition, c.at_s).where(c.partition.in_(numbers))
        times = {row.partition: row.at_s for row in self._connection.execute(query)}
        return {device: times[number] for device, number in wanted.items()}

    def newest_server_time(self) -> int:
        """Return the latest time that any box has received, seconds since 1970; 0: none yet."""
        return int(self._connection.execute(select(func.max(_TIMES.c.at_s))).scalar_one() or 0)
