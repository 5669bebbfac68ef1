"""The store: one database, opened once, used in transactions that return dataclasses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.boxes import BoxTable
from edgegpu_cloud.store.commands import CommandTable
from edgegpu_cloud.store.engine import open_engine, writing
from edgegpu_cloud.store.enrolments import Enrolments
from edgegpu_cloud.store.migrations import migrate
from edgegpu_cloud.store.notes import NoteTable
from edgegpu_sync.ids import DeviceId


class CommitMoment(Enum):
    """The moments around a commit at which a process may die."""

    BEFORE_COMMIT = "before"
    AFTER_COMMIT = "after"


Watcher = Callable[[CommitMoment], None]


def _nobody(_: CommitMoment) -> None:
    """Do nothing at a commit: the default watcher."""


class StoreError(CloudError):
    """A failure of the database: it is locked for long, full or gone, or something is there twice."""


class RecordError(StoreError):
    """A failure of the database with one record: the record's own fault, and no other's."""


class Transaction:
    """One transaction: what can be read and written in it, by subject.

    Rows are fetched whole before they are read: where reading one raises, no cursor stays open, whose snapshot of a
    SQLite file would keep this process from writing.
    """

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self.boxes = BoxTable(connection, hold=writes)
        self.commands = CommandTable(connection)
        self.enrolments = Enrolments(connection, hold=writes)
        self.notes = NoteTable(connection)

    def forget_box(self, device: DeviceId, *, by: str) -> None:
        """Drop all that is known of a box but its certificates, its alarms and the audit."""
        self.commands.forget_box(device)
        self.notes.forget_box(device, by=by)
        self.boxes.forget(device)

    def tidy(self, before_s: float) -> None:
        """Drop what ended or happened before then, and documents that are far behind the current ones."""
        self.commands.forget(before_s)
        self.notes.forget_events(before_s)
        self.boxes.forget_specs()


class ControllerStore:
    """A database that several processes may have open; usable from any thread."""

    def __init__(self, engine: Engine, *, watcher: Watcher = _nobody) -> None:
        """Take an engine with migrated tables; `watcher` is called at each commit and may end the process (tests)."""
        self._engine = engine
        self._writing = writing(engine)
        self._watcher = watcher

    @classmethod
    def open(cls, url: str, *, watcher: Watcher = _nobody) -> "ControllerStore":
        """Open a database by its URL and bring its tables up to date.

        Raises:
            CloudError: no such database, or a newer edgegpu has made its tables.
            StoreError: the database refuses.
        """
        engine = open_engine(url)
        try:
            with writing(engine).begin() as connection:
                migrate(connection)
        except SQLAlchemyError as error:
            raise _explained(error, engine.url.database) from error
        return cls(engine, watcher=watcher)

    @classmethod
    def open_file(cls, path: Path, *, watcher: Watcher = _nobody) -> "ControllerStore":
        """Open a SQLite file, created where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls.open(f"sqlite:///{path}", watcher=watcher)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Read one state of the store, which does not change meanwhile."""
        try:
            with self._engine.connect() as connection:
                yield Transaction(connection, writes=False)
        except SQLAlchemyError as error:
            raise _explained(error, self._engine.url.database) from error

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Change the store: all of it is on the disk when the block ends; nothing of it when the block raises."""
        try:
            with self._writing.connect() as connection:
                yield Transaction(connection, writes=True)
                self._watcher(CommitMoment.BEFORE_COMMIT)
                connection.commit()
            self._watcher(CommitMoment.AFTER_COMMIT)
        except SQLAlchemyError as error:
            raise _explained(error, self._engine.url.database) from error

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()


def _explained(error: SQLAlchemyError, path: str | None) -> StoreError:
    cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
    where = path or "the store"
    remedies = {
        "not a database": "restore it from a backup (docs/cloud/backup.md says how)",
        "malformed": "restore it from a backup (docs/cloud/backup.md says how)",
        "is full": f"make room on the disk of {where}",
        "locked": f"another process has it open: fuser -v {where}",
    }
    remedy = next(
        (one for words, one in remedies.items() if words in cause), "look at the disk, and at who has it open"
    )
    kind = RecordError if isinstance(error, DataError | IntegrityError) else StoreError
    return kind(f"cannot use {where}: {cause}", remedy=remedy)
