"""Settlements in one transaction."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, delete, func, insert, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.schema import MetaRow, table
from edgegpu_cloud.store.settlements.records import BoxSettlements, RequestKey, StoredSettlement
from edgegpu_cloud.store.settlements.schema import SettlementRow
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.uplink import ItemState

_ROWS, _META = table(SettlementRow), table(MetaRow)

KEPT_SETTLEMENTS = 1_000
"""Settlements of one box that are kept: the newest."""

SINCE = "settlements_since"
"""The number of the store that says from when on settlements are written: seconds since 1970."""

Keyed = Mapping[DeviceId, Collection[RequestKey]]


class SettlementTable:
    """The settlements of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, device: DeviceId) -> BoxSettlements:
        """Return the settlements of a box that are kept."""
        query = select(_ROWS).where(_ROWS.c.device == device)
        found = [_settlement(row) for row in self._connection.execute(query).mappings().all()]
        dropped_s = min(one.at_s for one in found) if len(found) >= KEPT_SETTLEMENTS else 0.0
        return BoxSettlements(by_key={one.key: one for one in found}, since_s=max(self._since_s(), dropped_s))

    def held(self, wanted: Keyed) -> dict[DeviceId, dict[RequestKey, StoredSettlement]]:
        """Return the settlements of these requests that are stored."""
        revs = {key.rev for keys in wanted.values() for key in keys}
        query = select(_ROWS).where(_ROWS.c.device.in_(sorted(wanted)), _ROWS.c.rev.in_(sorted(revs)))
        found: dict[DeviceId, dict[RequestKey, StoredSettlement]] = defaultdict(dict)
        for row in self._connection.execute(query).mappings().all() if revs else ():
            one = _settlement(row)
            found[DeviceId(row["device"])][one.key] = one
        return found

    def since(self, devices: Collection[DeviceId]) -> dict[DeviceId, float]:
        """Return from when on all settlements of these boxes are kept, as `BoxSettlements.since_s`."""
        c = _ROWS.c
        query = select(c.device, func.min(c.at_s)).where(c.device.in_(sorted(devices))).group_by(c.device)
        full = query.having(func.count() >= KEPT_SETTLEMENTS)
        dropped = {DeviceId(device): float(at_s) for device, at_s in self._connection.execute(full).all()}
        since_s = self._since_s()
        return {device: max(since_s, dropped.get(device, 0.0)) for device in devices}

    def _since_s(self) -> float:
        """Return from when on settlements are written."""
        since = self._connection.execute(select(_META.c.value).where(_META.c.key == SINCE)).scalar_one_or_none()
        return float(since or 0)

    def add(self, settled: Sequence[tuple[DeviceId, StoredSettlement]]) -> None:
        """Store settlements of requests that had none; the oldest of each box are dropped."""
        if settled:
            self._connection.execute(insert(_ROWS), [_values(device, one) for device, one in settled])
            self._forget_oldest({device for device, _ in settled})

    def put(self, settled: Sequence[tuple[DeviceId, StoredSettlement]]) -> None:
        """Store settlements in place of those that the same requests had."""
        rows = [_values(device, one) for device, one in settled]
        for row in rows:
            row |= {f"at_{name}": row.pop(name) for name in _KEY}
        if rows:
            self._connection.execute(update(_ROWS).where(_AT), rows)

    def reopen(self, opened: Sequence[tuple[DeviceId, RequestKey]]) -> None:
        """Drop the settlements of requests on which boxes work again."""
        rows = [
            {"at_device": device, "at_item": key.item, "at_rev": key.rev, "at_retry": key.retry}
            for device, key in opened
        ]
        if rows:
            self._connection.execute(delete(_ROWS).where(_AT), rows)

    def forget_box(self, device: DeviceId) -> None:
        """Drop all settlements of a box."""
        self._connection.execute(delete(_ROWS).where(_ROWS.c.device == device))

    def _forget_oldest(self, devices: Collection[DeviceId]) -> None:
        """Drop the oldest of boxes that have too many; most have few, so one statement asks for all of them."""
        c = _ROWS.c
        many = select(c.device).where(c.device.in_(sorted(devices))).group_by(c.device)
        for device in self._connection.execute(many.having(func.count() > KEPT_SETTLEMENTS)).scalars().all():
            newest = select(c.at_s).where(c.device == device).order_by(c.at_s.desc()).offset(KEPT_SETTLEMENTS).limit(1)
            oldest_s = self._connection.execute(newest).scalar_one()
            self._connection.execute(delete(_ROWS).where(c.device == device, c.at_s <= oldest_s))


_KEY = ("device", "item", "rev", "retry")
_AT = (
    (_ROWS.c.device == bindparam("at_device"))
    & (_ROWS.c.item == bindparam("at_item"))
    & (_ROWS.c.rev == bindparam("at_rev"))
    & (_ROWS.c.retry == bindparam("at_retry"))
)


def _settlement(row: RowMapping) -> StoredSettlement:
    return record_of(StoredSettlement, row, key=record_of(RequestKey, row), state=ItemState(row["state"]))


def _values(device: DeviceId, one: StoredSettlement) -> dict[str, object]:
    key = {"device": device, "item": one.key.item, "rev": one.key.rev, "retry": one.key.retry}
    rest = {"enrolment": one.enrolment, "state": one.state.value, "code": one.code, "text": one.text}
    return key | rest | {"at_s": one.at_s}
