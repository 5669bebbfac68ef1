"""A store's tables as a test compares them: as edgegpu 0.1.0 has made them, with rows, and as they are after all."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    create_engine,
    insert,
    inspect,
    select,
    text,
)

from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.migrations import FOLDER, newest

_RELEASED = Path(__file__).parent.parent / "unit/cloud/released"
DEVICE = "0000000000000001"


def make_released(url: str, *, rows: bool = True) -> None:
    """Create the tables of edgegpu 0.1.0, and one row or more in each; without `rows` the version alone."""
    engine = create_engine(url)
    sql = (_RELEASED / f"tables-{engine.dialect.name}.sql").read_text()
    with engine.begin() as connection:
        statements = [one for one in sql.split(";\n") if one.startswith("CREATE")]
        for one in sorted(statements, key=lambda one: not one.startswith("CREATE TABLE")):
            connection.exec_driver_sql(one)
        if rows:
            add_rows(connection)
            if engine.dialect.name == "postgresql":  # which counts on by itself where it has numbered the rows
                connection.exec_driver_sql("SELECT setval(pg_get_serial_sequence('audit', 'number'), 100)")
        else:
            connection.exec_driver_sql("INSERT INTO meta VALUES ('schema', 1)")
    engine.dispose()


def make_old(path: Path) -> None:
    """Put a store of edgegpu 0.1.0 in the place of a new controller's, with its key sets."""
    with closing(sqlite3.connect(path)) as link:
        sets = link.execute("SELECT version, text, sig FROM key_sets").fetchall()
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()
    make_released(f"sqlite:///{path}", rows=False)
    with closing(sqlite3.connect(path)) as link, link:
        link.executemany("INSERT INTO key_sets VALUES (?, ?, ?)", sets)


def stamp(url: str, version: int) -> None:
    """Let tables say that they have another version, as after a migration or a restore."""
    engine = open_engine(url)
    with writing(engine).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": f"{version:04d}"})
    engine.dispose()


def add_rows(connection: Connection) -> None:
    """Write two rows into each table, of boxes one: all others refer to it."""
    metadata = MetaData()
    metadata.reflect(connection)
    for table in metadata.sorted_tables:
        if table.name == "meta":
            connection.execute(insert(table), [{"key": "schema", "value": 1}, {"key": "changes", "value": 7}])
        else:
            numbers = [1] if table.name == "boxes" else [1, 2]
            connection.execute(insert(table), [row_of(table, number) for number in numbers])


def row_of(table: Table, number: int) -> dict[str, Any]:
    """Return values for each column of a table, others for another number."""
    values: dict[str, Any] = {}
    for column in table.columns:
        match column.type:
            case Boolean():
                values[column.name] = True
            case Integer():
                values[column.name] = number
            case Float():
                values[column.name] = number + 0.1
            case JSON():
                values[column.name] = {"a": [number, "é"]}
            case _:
                values[column.name] = DEVICE if column.name == "device" else f"{column.name}-{number}"[:16]
    return values


def whole(url: str, *, rows: bool = True) -> dict[str, Any]:
    """Return all that a database has: tables, columns, constraints and indexes with their names, rows."""
    engine = open_engine(url)
    with engine.connect() as connection:
        inspector = inspect(connection)
        metadata = MetaData()
        metadata.reflect(connection)
        found = {}
        for table in metadata.sorted_tables:
            about: list[Any] = [
                [(one["name"], str(one["type"]), one["nullable"]) for one in inspector.get_columns(table.name)],
                [inspector.get_pk_constraint(table.name)],
                sorted(map(str, inspector.get_unique_constraints(table.name))),
                sorted(map(str, inspector.get_foreign_keys(table.name))),
                sorted(map(str, inspector.get_indexes(table.name))),
            ]
            if rows:
                about.append(sorted(map(str, connection.execute(select(table)).all())))
            found[table.name] = about
    engine.dispose()
    return found


def rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table, in the order of their first column."""
    engine = open_engine(url)
    with engine.connect() as connection:
        metadata = MetaData()
        metadata.reflect(connection)
        found = {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.columns[:1])).mappings()]
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return found


def dump(url: str) -> str:
    """Return all that a database has, in a few queries: to be compared with itself."""
    engine = open_engine(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            driver: Any = connection.connection.driver_connection
            found = "\n".join(driver.iterdump())
        else:
            parts = [connection.exec_driver_sql(one).scalar_one() for one in (_COLUMNS, _CONSTRAINTS, _INDEXES)]
            tables = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").scalars()
            rows = "SELECT coalesce(json_agg(t)::text, '') FROM {} t"
            parts += [connection.exec_driver_sql(rows.format(one)).scalar_one() for one in sorted(tables)]
            found = "\n".join(parts)
    engine.dispose()
    return found


_COLUMNS = """
SELECT coalesce(string_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable), ','
    ORDER BY table_name, column_name), '')
FROM information_schema.columns WHERE table_schema = 'public'
"""
_CONSTRAINTS = """
SELECT coalesce(string_agg(conrelid::regclass || conname || pg_get_constraintdef(oid), ',' ORDER BY conname), '')
FROM pg_constraint
"""
_INDEXES = (
    "SELECT coalesce(string_agg(indexdef, ',' ORDER BY indexdef), '') FROM pg_indexes WHERE schemaname = 'public'"
)


def names(url: str) -> dict[str, set[str | None]]:
    """Return the names of each table's constraints and indexes, as the database has them."""
    engine = open_engine(url)
    inspector = inspect(engine)
    found = {}
    for table in inspector.get_table_names():
        several = (*inspector.get_unique_constraints(table), *inspector.get_foreign_keys(table))
        indexes = [one["name"] for one in inspector.get_indexes(table) if not one.get("duplicates_constraint")]
        found[table] = {inspector.get_pk_constraint(table)["name"], *(one["name"] for one in several), *indexes}
    engine.dispose()
    return found


def wanted_names(metadata: MetaData) -> dict[str, set[str | None]]:
    """Return the names that the row classes give to constraints and indexes, by table."""
    found: dict[str, set[str | None]] = {}
    for table in metadata.sorted_tables:
        constraints = {str(one.name) for one in table.constraints}
        found[table.name] = {*constraints, *(str(one.name) for one in table.indexes)}
    return found


def with_revision(folder: Path, body: str) -> Path:
    """Return a folder with our revisions and one more after them, whose `upgrade` has this body."""
    shutil.copytree(FOLDER / "versions", folder / "versions", ignore=shutil.ignore_patterns("__pycache__"))
    last = newest()
    lines = "\n    ".join(body.strip().splitlines())
    (folder / f"versions/{last + 1:04d}_of_a_test.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f'revision, down_revision = "{last + 1:04d}", "{last:04d}"\nbranch_labels = depends_on = None\n'
        f"def upgrade():\n    {lines}\n"
    )
    return folder


def until_revision(folder: Path, last: int) -> Path:
    """Return a folder with our revisions up to this one: its tables are those of an older edgegpu."""
    (folder / "versions").mkdir(parents=True)
    for one in (FOLDER / "versions").glob("[0-9]*_*.py"):
        if int(one.name[:4]) <= last:
            shutil.copy(one, folder / "versions")
    return folder
