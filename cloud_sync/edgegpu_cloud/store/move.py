"""The move of a store from a SQLite file into a PostgreSQL: in batches, in one transaction, compared at its end."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, Table, delete, exists, func, insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.migrations import migrate, version_of
from edgegpu_cloud.store.schema import TableRow
from edgegpu_cloud.store.store import check_current, explained, place_of

_BATCH = 1_000
_WRAP = 2**128
_TABLES: Sequence[Table] = TableRow.metadata.sorted_tables
"""Each table after those that it refers to."""

Rows = Sequence[RowMapping]


@dataclass(slots=True)
class TableDigest:
    """The rows of a table: how many, and a sum over them that does not depend on their order."""

    rows: int = 0
    sum: int = 0

    def add(self, rows: Rows) -> None:
        """Count rows."""
        self.rows += len(rows)
        for row in rows:
            canonical = json.dumps(dict(row), sort_keys=True).encode()
            self.sum = (self.sum + int.from_bytes(hashlib.sha256(canonical).digest()[:16], "big")) % _WRAP


@dataclass(frozen=True, slots=True)
class MovedStore:
    """The place of a store that was moved, for people, and the number of rows of each table."""

    place: str
    rows: dict[str, int]


def move_store(source: str, target: str) -> MovedStore:
    """Copy a store into a database without tables.

    All is in one transaction of the target: killed at any moment, it has no tables. The source is only read, and
    nobody can write to it meanwhile. Where the target holds this very store already, because a run was killed after its
    commit, nothing is copied.

    Args:
        source: the URL of a SQLite file, whose tables are current.
        target: the URL of a PostgreSQL.

    Raises:
        CloudError: the source's tables are old, the target has others, or what arrived is not what was sent.
        StoreError: one of the databases refuses; nothing has changed.
    """
    check_current(source)
    old, new = open_engine(source), open_engine(target)
    try:
        with writing(old).begin() as taken, new.begin() as given:
            there = version_of(given) is not None
            sent = _digests(taken) if there else _copy(taken, given)
            arrived = _digests(given) if not there or _has_all(given) else {}
            if there and sent != arrived:
                remedy = "name an empty one: createdb --owner USER DATABASE, on its machine"
                raise CloudError(
                    f"cannot move the store into {place_of(new.url)}: it has tables already", remedy=remedy
                )
            _check(given, sent, arrived)
    except SQLAlchemyError as error:
        raise explained(error, place_of(new.url)) from error
    finally:
        old.dispose()
        new.dispose()
    return MovedStore(place_of(new.url), {name: one.rows for name, one in sent.items()})


def _has_all(connection: Connection) -> bool:
    return {one.name for one in _TABLES} <= set(inspect(connection).get_table_names())


def _copy(taken: Connection, given: Connection) -> dict[str, TableDigest]:
    migrate(given)
    for one in reversed(_TABLES):
        given.execute(delete(one))  # the revisions have written some
    found = {one.name: TableDigest() for one in _TABLES}
    for one in _TABLES:
        for rows in _batches(taken, one):
            found[one.name].add(rows)
            given.execute(insert(one), [dict(row) for row in rows])
        _count_on(given, one)
    return found


def _batches(connection: Connection, of: Table) -> Iterator[Rows]:
    rows = connection.execution_options(yield_per=_BATCH).execute(select(of)).mappings()
    yield from rows.partitions(_BATCH)


def _digests(connection: Connection) -> dict[str, TableDigest]:
    found = {one.name: TableDigest() for one in _TABLES}
    for one in _TABLES:
        for rows in _batches(connection, one):
            found[one.name].add(rows)
    return found


def _count_on(given: Connection, of: Table) -> None:
    """Let the database count up from the highest number that is there."""
    column = of.autoincrement_column
    if column is None:
        return
    sequence = select(func.pg_get_serial_sequence(of.name, column.name))
    highest = given.execute(select(func.max(column))).scalar_one()
    if highest is not None and (name := given.execute(sequence).scalar_one()):
        given.execute(text("SELECT setval(:name, :value)"), {"name": name, "value": highest})


def _check(given: Connection, sent: Mapping[str, TableDigest], arrived: Mapping[str, TableDigest]) -> None:
    """Raise where rows are missing or others, or where a row refers to one that is not there."""
    wrong = [
        f"{name}: {one.rows} rows, {arrived[name].rows} arrived" for name, one in sent.items() if one != arrived[name]
    ]
    for one in _TABLES:
        for key in one.foreign_keys:
            other = key.column.table.alias()
            nowhere = ~exists().where(other.c[key.column.name] == key.parent) & key.parent.is_not(None)
            if lost := given.execute(select(func.count()).select_from(one).where(nowhere)).scalar_one():
                wrong.append(f"{one.name}: {lost} rows refer to no row of {key.column.table.name}")
    if wrong:
        remedy = "nothing was changed; report this with these numbers"
        raise CloudError(f"cannot move the store: {'; '.join(wrong)}", remedy=remedy)
