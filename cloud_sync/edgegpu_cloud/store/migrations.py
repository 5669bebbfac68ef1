"""The version of the tables: new stores get the newest, old ones are migrated step by step, newer ones are refused."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert, inspect, select, update

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.schema import MetaRow, TableRow, table

_META = table(MetaRow)
_VERSION = "schema"

Step = Callable[[Connection], None]

STEPS: Sequence[Step] = ()
"""The steps from version 1 to 2, from 2 to 3, …: each in SQL that every database has, never edited once released."""


def migrate(connection: Connection, steps: Sequence[Step] = STEPS) -> int:
    """Bring the tables to this program's version, in the transaction of `connection`; return the version.

    Raises:
        CloudError: a newer edgegpu has made the tables.
    """
    newest = 1 + len(steps)
    if not inspect(connection).has_table(_META.name):
        TableRow.metadata.create_all(connection)
        connection.execute(insert(_META).values(key=_VERSION, value=newest))
        return newest
    found = int(connection.execute(select(_META.c.value).where(_META.c.key == _VERSION)).scalar_one())
    if found > newest:
        remedy = "upgrade edgegpu here, or restore the backup that was taken before"
        raise CloudError(f"cannot use this store: its tables have version {found}, ours is {newest}", remedy=remedy)
    for step in steps[found - 1 :]:
        step(connection)
    connection.execute(update(_META).where(_META.c.key == _VERSION).values(value=newest))
    return newest
