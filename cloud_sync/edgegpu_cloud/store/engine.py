"""The database engine: SQLite is made durable and lets two processes write; PostgreSQL lets nobody wait for ever.

Errors, which stand in logs with their tracebacks, have no values of rows: those are hashes, and receivers' addresses.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json
from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from edgegpu_base.lock_files import open_lock, try_lock
from edgegpu_cloud.errors import CloudError

BUSY_S = 30
"""How long one transaction waits for another's."""

_LOOK_S = 0.002
_WRITES = "edgegpu_writes"
_CONNECT_S = 10
_IDLE_S = 20
"""How long a transaction may do nothing before PostgreSQL ends it.

Less than `BUSY_S`: whoever waits for the rows of a process that was stopped in a transaction gets them, and is not
refused."""


def open_engine(url: str, *, foreign_keys: bool = True) -> Engine:
    """Return an engine for a database URL (`sqlite:////path`, `postgresql+psycopg://…`).

    `foreign_keys`: whether SQLite holds them at each statement; a migration checks them at its end.

    Raises:
        CloudError: no URL of a database.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "postgresql":
            return _open_postgresql(parsed)
        engine = create_engine(parsed, hide_parameters=True, json_serializer=_to_json, json_deserializer=_from_json)
    except (ArgumentError, ValueError) as error:
        remedy = "give a URL like sqlite:////path/file.db or postgresql+psycopg://USER@HOST/DATABASE"
        raise CloudError(f"cannot open the store: {error}", remedy=remedy) from error
    if engine.dialect.name == "sqlite":
        _keep_private(Path(parsed.database or ""))
        event.listen(engine, "connect", _prepare_sqlite if foreign_keys else _prepare_migration)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


_NO_FILE = frozenset({"", ":memory:"})


def _keep_private(path: Path) -> None:
    """Let a database's file be for its owner alone, before SQLite makes it; SQLite gives `-wal` and `-shm` its mode.

    A file that is there is not opened: closing it would drop the locks that this process has on it (fcntl(2)).
    """
    if path.name in _NO_FILE:
        return
    with suppress(OSError):  # SQLite says why the file cannot be used
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            file = path.with_name(path.name + end)
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & 0o077:
                file.chmod(mode & 0o700)


def _open_postgresql(url: URL) -> Engine:
    """Return an engine that looks whether a connection still stands before it is used: the server may have restarted.

    Writes take locks on the rows that they read (`FOR UPDATE`), which needs READ COMMITTED.
    """
    waits = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_S}
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args=waits,
        json_serializer=_to_json,
        json_deserializer=_from_json,
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _to_json(value: object) -> str:
    """Write a column's value; pydantic's writer takes a third of the time of json's, but knows no lone surrogates."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except PydanticSerializationError:
        return json.dumps(value)


def _from_json(text: str) -> object:
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def upsert(connection: Connection, table: Table) -> Any:  # noqa: ANN401  (each dialect's own)
    """Return an insert into a table that may have `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415  (its 60 ms are no start's of a cloud with SQLite)

        return postgresql.insert(table)
    return sqlite.insert(table)


def reading(engine: Engine) -> Engine:
    """Return the engine for transactions that read: with PostgreSQL all of one transaction's queries see one state."""
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writing(engine: Engine) -> Engine:
    """Return the engine for transactions that write: with SQLite they take the one lock at once, not in the middle."""
    return engine.execution_options(**{_WRITES: True})


def _prepare_sqlite(connection: Any, _: object, *, foreign_keys: str = "ON") -> None:  # noqa: ANN401  (the driver's)
    connection.isolation_level = None  # transactions are ours: the driver would begin them late
    cursor = connection.cursor()
    held = f"foreign_keys={foreign_keys}"
    for pragma in ("journal_mode=WAL", "synchronous=FULL", held, f"busy_timeout={BUSY_S * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _prepare_migration(connection: Any, record: object) -> None:  # noqa: ANN401  (the driver's own connection)
    _prepare_sqlite(connection, record, foreign_keys="OFF")  # within a transaction SQLite ignores this pragma


def _begin_sqlite(connection: Connection) -> None:
    if not connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("BEGIN")
        return
    database = Path(connection.engine.url.database or "")
    with nullcontext() if database.name in _NO_FILE else _turn(database):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _turn(database: Path) -> Iterator[None]:
    """Be the only one that waits for SQLite's lock on a database, of all threads and processes.

    Who waits for that lock looks at it every so often, up to 100 ms apart (sqliteDefaultBusyCallback), and may never
    find it free where another one writes again and again: that one must get the turn first, which the waiting one has.
    It is a courtesy alone: where it cannot be had, or not for long, SQLite decides. It has a file of its own, because
    any user who can open the folder can lock the folder.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # the folder is gone, or its file system has no locks
            lock = open_lock(database.with_name(f"{database.name}-turn"))
            stack.callback(os.close, lock)
            end_s = time.monotonic() + BUSY_S
            while not try_lock(lock) and time.monotonic() < end_s:
                time.sleep(_LOOK_S)
        yield


def _prepare_postgresql(connection: Any, _: object) -> None:  # noqa: ANN401  (the driver's own connection)
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{BUSY_S}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_S}s'")
    connection.commit()
