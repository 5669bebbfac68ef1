"""The database engine: SQLite is made durable and lets two processes write; other databases need nothing."""

from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from edgegpu_cloud.errors import CloudError

BUSY_S = 30
"""How long one process waits for another's transaction."""

_WRITES = "edgegpu_writes"


def open_engine(url: str) -> Engine:
    """Return an engine for a database URL (`sqlite:////path`, `postgresql+psycopg://…`).

    Raises:
        CloudError: no URL of a database.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise CloudError(f"cannot open the store: {error}", remedy="give a URL like sqlite:////path/file.db") from error
    engine = create_engine(parsed)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def writing(engine: Engine) -> Engine:
    """Return the engine for transactions that write: with SQLite they take the one lock at once, not in the middle."""
    return engine.execution_options(**{_WRITES: True})


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401  (the driver's own connection)
    connection.isolation_level = None  # transactions are ours: the driver would begin them late
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_S * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
