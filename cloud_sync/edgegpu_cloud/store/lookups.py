"""What enrolment asks of boxes, answered by the database: a fleet of ten thousand is not read for each new box."""

from sqlalchemy import Connection, func, select

from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId

_BOXES = table(BoxRow)


def with_instance(tx: Transaction, instance: str) -> list[DeviceId]:
    """Return the boxes that this machine is, the one that was enrolled last at the end."""
    query = select(_BOXES.c.device).where(_BOXES.c.instance == instance).order_by(_BOXES.c.enrolled_at_s)
    return [DeviceId(device) for device in _connection(tx).execute(query).scalars()]


def has_name(tx: Transaction, name: str) -> bool:
    """Whether a box is called so, or has this for its device id."""
    query = select(func.count()).where((_BOXES.c.name == name) | (_BOXES.c.device == name))
    return bool(_connection(tx).execute(query).scalar_one())


def _connection(tx: Transaction) -> Connection:
    return tx.boxes._connection  # noqa: SLF001  (of this package)
