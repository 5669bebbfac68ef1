"""The copy of a store as it was at one moment, and its return: a SQLite file, or a PostgreSQL by `pg_dump`."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import MetaData, create_engine, inspect, make_url
from sqlalchemy.exc import SQLAlchemyError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.store import explaining, place_of, tables_version


def copy_store(url: str, target: Path) -> None:
    """Write a whole, consistent copy of a store, 0600; others may write to the store meanwhile.

    Args:
        url: the store's database.
        target: must not exist; a SQLite file, or for PostgreSQL what `pg_restore` reads.

    Raises:
        CloudError: the store cannot be read, or the copy cannot be written, or there is no `pg_dump` here.
    """
    try:
        if make_url(url).get_backend_name() == "sqlite":
            _copy_file(url, target)
        else:
            _dump(url, target)
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fchmod(handle, 0o600)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise CloudError(f"cannot write {target}: {error}", remedy="make room there") from error


def _copy_file(url: str, target: Path) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise CloudError(f"cannot copy {engine.url.database}: {cause}", remedy="make room there") from error
    finally:
        engine.dispose()


def restore_dump(dump: Path, url: str) -> None:
    """Bring what `copy_store` has copied of a PostgreSQL into a database without tables: all of it or nothing.

    Raises:
        CloudError: the database has tables or refuses, or there is no `pg_restore` here.
    """
    place = place_of(make_url(url))
    if tables_version(url) is not None:
        remedy = "name an empty one: createdb --owner USER DATABASE, on its machine"
        raise CloudError(f"cannot restore into {place}: it has tables already", remedy=remedy)
    words = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
    done = _run_postgresql("pg_restore", [*words, str(dump)], url)
    if done.returncode:
        remedy = "does its user own it, and is pg_restore as new as the server from which the backup comes?"
        raise CloudError(f"cannot restore into {place}: {_words(done)}", remedy=remedy)


@contextmanager
def restored_dump(dump: Path, url: str) -> Iterator[None]:
    """Restore a dump as `restore_dump` does, for a block; after an error in it the database has the tables of before.

    Raises:
        CloudError: as `restore_dump`.
    """
    before = _tables(url)
    restore_dump(dump, url)
    try:
        yield
    except BaseException:
        _drop(url, but=before)
        raise


def _tables(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        with explaining(make_url(url)):
            return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def _drop(url: str, *, but: set[str]) -> None:
    engine, tables = create_engine(url), MetaData()
    try:
        with explaining(make_url(url)), engine.begin() as connection:
            tables.reflect(connection, only=lambda name, _: name not in but)
            tables.drop_all(connection)
    finally:
        engine.dispose()


def _dump(url: str, target: Path) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            done = _run_postgresql("pg_dump", ["--format=custom"], url, out=out)
    except CloudError:
        target.unlink()
        raise
    if done.returncode:
        target.unlink()
        remedy = "does its server answer, and is pg_dump as new as the server (apt-get install postgresql-client-NN)?"
        raise CloudError(f"cannot copy {place_of(make_url(url))}: {_words(done)}", remedy=remedy)


def _run_postgresql(
    name: str, words: Sequence[str], url: str, *, out: BinaryIO | int = subprocess.DEVNULL
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program of PostgreSQL on a database, until it ends.

    The password goes by its environment, which other users cannot read, not by its arguments.
    """
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415  (most stores need none of it)

    parsed = make_url(url)
    program = shutil.which(name)
    if program is None:
        remedy = "apt-get install postgresql-client; it has to be as new as the server"
        raise CloudError(f"cannot use {place_of(parsed)}: there is no {name} here", remedy=remedy)
    _, options = parsed.get_dialect()().create_connect_args(parsed)
    secret = {"PGPASSWORD": options.pop("password")} if "password" in options else {}
    return subprocess.run(
        [program, "--no-password", "--dbname", make_conninfo("", **options), *words],
        env={**os.environ, **secret}, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip


def _words(done: "subprocess.CompletedProcess[bytes]") -> str:
    return " ".join(done.stderr.decode(errors="replace").split())
