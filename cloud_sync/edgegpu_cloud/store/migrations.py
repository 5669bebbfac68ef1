"""The version of the tables: each file in `versions/` is a revision; a store goes to the newest in one transaction.

Alembic runs the revisions. It is loaded only where a store has to change: a service that finds its tables current
never loads it. Alembic's proxy `op` belongs to the whole process, so one thread migrates at a time.
"""

import logging
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, inspect, select, text, update

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.schema import MetaRow, table

_META = table(MetaRow)
_SCHEMA = "schema"
_ALEMBIC = "alembic_version"
_ONE_AT_A_TIME = threading.Lock()
_ADVISORY_LOCK = 0x65646765
"""The number of PostgreSQL's lock that a migration holds: "edge" in ASCII."""

FOLDER = Path(__file__).parent
"""The folder of `versions/`."""

RELEASED = 0
"""The version of the tables that edgegpu 0.1.0 has made: revision 0001 names their constraints."""


class OtherTablesError(CloudError):
    """Tables of another version than this program's: nothing is read or written, and a person has to act."""


def newest(folder: Path = FOLDER) -> int:
    """Return the version that this program's tables have: the number of its last revision."""
    return _OURS if folder == FOLDER else _newest(folder)


def _newest(folder: Path) -> int:
    return max(int(path.name.partition("_")[0]) for path in folder.glob("versions/[0-9]*_*.py"))


_OURS = _newest(FOLDER)


def version_of(connection: Connection) -> int | None:
    """Return the version of a store's tables; None where there are none yet.

    Raises:
        CloudError: the tables are not this program's.
    """
    inspector = inspect(connection)
    if not inspector.has_table(_META.name):
        return None
    if not inspector.has_table(_ALEMBIC):
        found = int(connection.execute(select(_META.c.value).where(_META.c.key == _SCHEMA)).scalar_one())
        return RELEASED if found == 1 else found
    return version_in_use(connection)


def version_in_use(connection: Connection) -> int:
    """Return the version of migrated tables, by one query.

    PostgreSQL begins no migration before this transaction ends: it holds the table of versions, which `migrate` takes
    for itself first.

    Raises:
        CloudError: the tables are not this program's.
    """
    revisions = connection.execute(text(f"SELECT version_num FROM {_ALEMBIC}")).scalars().all()  # noqa: S608
    if len(revisions) != 1 or not revisions[0].isdecimal():
        remedy = "does its URL name another program's database? Else restore a backup (docs/cloud/backup.md)"
        raise CloudError(f"cannot use this store: its tables have the versions {revisions}", remedy=remedy)
    return int(revisions[0])


def check_not_newer(found: int | None, folder: Path = FOLDER) -> None:
    """Refuse tables that a newer edgegpu has made.

    Raises:
        OtherTablesError: they are newer.
    """
    ours = newest(folder)
    if found is not None and found > ours:
        raise OtherTablesError(
            phrase(
                "cannot use this store: its tables have version %(found)s, ours is %(ours)s", found=found, ours=ours
            ),
            remedy=phrase("upgrade edgegpu here, or restore the backup that was taken before"),
        )


Then = Callable[[Connection, int], None]
"""What is done in the transaction of a migration when the tables are new; it is given the version that they had."""


def upgrade(url: str, folder: Path = FOLDER, *, then: Then | None = None) -> int | None:
    """Bring the tables of a database to the newest version; return the version that they had, None for no tables.

    SQLite does so with foreign keys off: a table that is copied and dropped would take the rows with it that refer to
    it. All references are checked before the commit.

    Raises:
        CloudError: a newer edgegpu has made the tables, or a reference leads nowhere afterwards: nothing has changed.
        SQLAlchemyError: the database refuses: nothing has changed.
    """
    engine = open_engine(url, foreign_keys=False)
    try:
        with _ONE_AT_A_TIME, writing(engine).begin() as connection:
            found = migrate(connection, folder)
            if then is not None and found not in (None, newest(folder)):
                then(connection, found)
            return found
    finally:
        engine.dispose()


def migrate(connection: Connection, folder: Path = FOLDER) -> int | None:
    """Do what `upgrade` does, in the transaction of a connection that has foreign keys off."""
    sqlite = connection.dialect.name == "sqlite"
    if not sqlite:
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        if inspect(connection).has_table(_ALEMBIC):  # a process that still runs writes before this, or not at all
            connection.execute(text(f"LOCK TABLE {_ALEMBIC}"))
    found, ours = version_of(connection), newest(folder)
    check_not_newer(found, folder)
    if found == ours:
        return found
    _run_revisions(connection, folder)
    # edgegpu 0.1.0 reads this number, and refuses a store whose tables it does not know.
    connection.execute(update(_META).where(_META.c.key == _SCHEMA).values(value=ours))
    if sqlite:
        _check_references(connection)
    return found


def load_revisions() -> None:
    """Load Alembic and the revisions now: a root that becomes another user may be unable to read its program then."""
    _script(FOLDER).get_heads()
    _run_with()


@cache
def _script(folder: Path) -> Any:  # noqa: ANN401  (Alembic's own type)
    from alembic.script import ScriptDirectory  # noqa: PLC0415  (a service whose tables are current needs no Alembic)

    return ScriptDirectory(str(folder))


def _run_with() -> Any:  # noqa: ANN401  (Alembic's own types)
    from alembic.operations import Operations  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    logging.getLogger("alembic").setLevel(logging.WARNING)  # who migrates says so
    return Operations, MigrationContext


def _run_revisions(connection: Connection, folder: Path) -> None:
    operations, migration_context = _run_with()
    script = _script(folder)

    def steps(current: Any, _: object) -> Any:  # noqa: ANN401  (Alembic's own types)
        return script._upgrade_revs("head", current)  # noqa: SLF001  (what its command `upgrade` calls)

    context = migration_context.configure(connection, opts={"fn": steps})
    with operations.context(context):
        context.run_migrations()


def _check_references(connection: Connection) -> None:
    """Raise for a row that refers to none: SQLite has not looked while foreign keys were off."""
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        tables = ", ".join(sorted({f"{one[0]} (to {one[2]})" for one in broken}))
        text_ = f"cannot migrate this store: {len(broken)} rows would refer to rows that are gone, in {tables}"
        raise CloudError(text_, remedy="nothing was changed; report this with a copy of the store's tables")
