"""The store: one database, opened once, used in transactions that return dataclasses."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import Phrase, on_pages, phrase
from edgegpu_cloud.store.alerts.conditions import Conditions
from edgegpu_cloud.store.alerts.tables import AlertTable
from edgegpu_cloud.store.alerts.webhooks import WebhookTable
from edgegpu_cloud.store.boxes import BoxTable
from edgegpu_cloud.store.causes import cause_of
from edgegpu_cloud.store.commands import CommandTable
from edgegpu_cloud.store.controllers.certificates import ControllerCertificates
from edgegpu_cloud.store.controllers.leases import ALL, LeaseTable
from edgegpu_cloud.store.engine import open_engine, reading, writing
from edgegpu_cloud.store.enrolments import Enrolments
from edgegpu_cloud.store.idempotency.tables import IdempotencyTable
from edgegpu_cloud.store.migrations import (
    OtherTablesError,
    check_not_newer,
    newest,
    upgrade,
    version_in_use,
    version_of,
)
from edgegpu_cloud.store.notes import NoteTable, add_audit
from edgegpu_cloud.store.operations.tables import OperationTable
from edgegpu_cloud.store.people.tables import PeopleTable
from edgegpu_cloud.store.records import AuditEntry
from edgegpu_cloud.store.retention import Purge, Retention
from edgegpu_cloud.store.rollouts.planned import PlanTable
from edgegpu_cloud.store.rollouts.tables import RolloutTable
from edgegpu_cloud.store.settlements.tables import SettlementTable
from edgegpu_cloud.store.summaries.box_list import BoxList
from edgegpu_cloud.store.summaries.tables import BoxChanges, ChangeNumbers, SummaryTable
from edgegpu_cloud.store.telemetry.tables import TelemetryTable
from edgegpu_sync.ids import DeviceId

MOST_CHANGES = 256
"""About so many changed boxes of each partition are named at once; the others at the next question. At 10 000 boxes
that is more than a partition has: what another controller takes over comes in one answer."""


class CommitMoment(Enum):
    """The moments around a commit at which a process may die."""

    BEFORE_COMMIT = "before"
    AFTER_COMMIT = "after"


Watcher = Callable[[CommitMoment], None]


def _nobody(_: CommitMoment) -> None:
    """Do nothing at a commit: the default watcher."""


class StoreError(CloudError):
    """A failure of the database: it is locked for long, full or gone, or something is there twice."""

    def __init__(self, text: str, *, remedy: str = "", words: str = "") -> None:
        """Make one; `words` are those of the database's driver."""
        super().__init__(text, remedy=remedy)
        self.words = words


class RecordError(StoreError):
    """A failure of the database with one record: the record's own fault, and no other's."""


class ContendedError(StoreError):
    """A transaction that met another one: nothing of it was changed, and the same may be tried again."""


class OlderTablesError(OtherTablesError):
    """Tables that an older edgegpu has made: services wait until somebody migrates them."""


class Transaction:
    """One transaction: what can be read and written in it, by subject.

    Rows are fetched whole before they are read: where reading one raises, no cursor stays open, whose snapshot of a
    SQLite file would keep this process from writing.
    """

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self._connection = connection
        self.summaries = SummaryTable(connection)
        self.list = BoxList(connection)
        self.boxes = BoxTable(connection, hold=writes, summaries=self.summaries)
        self.commands = CommandTable(connection)
        self.enrolments = Enrolments(connection, hold=writes)
        self.notes = NoteTable(connection)
        self.people = PeopleTable(connection, hold=writes)
        self.telemetry = TelemetryTable(connection)
        self.operations = OperationTable(connection, hold=writes)
        self.settlements = SettlementTable(connection)
        self.idempotency = IdempotencyTable(connection, hold=writes)
        self.leases, self.controller_certificates = LeaseTable(connection), ControllerCertificates(connection)
        self.rollouts, self.rollout_plans = RolloutTable(connection, hold=writes), PlanTable(connection)
        self.alerts, self.conditions = AlertTable(connection), Conditions(connection)
        self.webhooks = WebhookTable(connection)

    def forget_box(self, device: DeviceId, *, by: str) -> None:
        """Drop all that is known of a box but its certificates, its alarms and the audit."""
        self.commands.forget_box(device)
        self.notes.forget_box(device, by=by)
        self.telemetry.forget_box(device)
        self.settlements.forget_box(device)
        self.boxes.forget(device)

    def tidy(self, keep: Retention, *, now_s: float, held: Collection[int] = ALL) -> bool:
        """Drop a batch of what is kept no longer, and documents that are far behind the current ones.

        Args:
            keep: how long each kind is kept.
            now_s: seconds since 1970.
            held: of the boxes of these partitions.

        Returns:
            Whether there is more: call it again, in a transaction of its own.
        """
        purge = Purge(self._connection, keep, now_s=now_s)
        purge.run(held=held)
        self.notes.trim_events(held=held)
        self.boxes.forget_specs(held=held)
        self.summaries.tidy(held)
        return purge.more

    def finish(self) -> None:
        """Write what waits for the end of the transaction."""
        self.summaries.finish()
        if self.rollouts.moved_on or self.operations.moved_on:
            self.notes.moved_on()


_ALSO: ContextVar[Callable[[Transaction], None] | None] = ContextVar("also", default=None)


@contextmanager
def in_same_transaction(write: Callable[[Transaction], None]) -> Iterator[None]:
    """Let `write` be called at the end of each transaction by which this block changes the store, before its commit."""
    token = _ALSO.set(write)
    try:
        yield
    finally:
        _ALSO.reset(token)


class ControllerStore:
    """A database that several processes may have open; usable from any thread."""

    def __init__(self, engine: Engine, *, watcher: Watcher = _nobody) -> None:
        """Take an engine with migrated tables; `watcher` is called at each commit and may end the process (tests)."""
        self._engine = engine
        self._reading, self._writing = reading(engine), writing(engine)
        self._watcher = watcher

    @classmethod
    def open(cls, url: str, *, create: bool = True, watcher: Watcher = _nobody) -> "ControllerStore":
        """Open a database by its URL. A database without tables gets them, where `create` says so.

        Raises:
            OlderTablesError: an older edgegpu has made its tables.
            CloudError: no such database, no tables in it, or a newer edgegpu has made them.
            StoreError: the database refuses.
        """
        if check_current(url) is None:
            if not create:
                remedy = phrase(
                    "restore a backup (docs/cloud/backup.md), or make a new controller: "
                    "`edgegpu-cloud init --name HOST`"
                )
                raise CloudError(
                    phrase("cannot use %(what)s: it has no tables", what=place_of(make_url(url))), remedy=remedy
                )
            migrate_tables(url)
        return cls(open_engine(url), watcher=watcher)

    @classmethod
    def make(cls, url: str) -> "ControllerStore":
        """Create the tables of a database that has none, and open it.

        Raises:
            CloudError: it has tables.
            StoreError: as `open`.
        """
        if tables_version(url) is not None:
            remedy = phrase("name an empty one: createdb --owner USER DATABASE, on its machine")
            raise CloudError(
                phrase("cannot make a store in %(what)s: it has tables already", what=place_of(make_url(url))),
                remedy=remedy,
            )
        return cls.open(url)

    @classmethod
    def open_file(cls, path: Path, *, watcher: Watcher = _nobody) -> "ControllerStore":
        """Open a SQLite file, created where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls.open(f"sqlite:///{path}", watcher=watcher)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Read one state of the store, which does not change meanwhile."""
        with explaining(self._engine.url), self._reading.connect() as connection:
            yield Transaction(connection, writes=False)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Change the store: all of it is on the disk when the block ends; nothing of it when the block raises.

        Raises:
            OlderTablesError: its tables are an older edgegpu's by now: they were restored.
            OtherTablesError: they are a newer one's: they were migrated while this process ran.
            ContendedError: PostgreSQL alone: another transaction was in the way, run the block again.
            StoreError: the database refuses.
        """
        with explaining(self._engine.url):
            with self._writing.connect() as connection:
                self._check_tables(connection)
                tx = Transaction(connection, writes=True)
                yield tx
                if (also := _ALSO.get()) is not None:
                    also(tx)
                tx.finish()
                self._watcher(CommitMoment.BEFORE_COMMIT)
                connection.commit()
            self._watcher(CommitMoment.AFTER_COMMIT)

    def changed_boxes(self, since: ChangeNumbers | None) -> BoxChanges:
        """Return the boxes that have changed after these numbers, and how far that goes; None: the newest numbers."""
        with self.read() as tx:
            if since is None:
                return BoxChanges(tx.summaries.numbers(), ())
            return tx.summaries.changed_since(since, limit=MOST_CHANGES)

    def check_tables(self) -> None:
        """Check that the tables are still those of this program.

        Raises:
            OtherTablesError: as `write`.
            StoreError: the database does not answer.
        """
        with explaining(self._engine.url), self._reading.connect() as connection:
            self._check_tables(connection)

    def _check_tables(self, connection: Connection) -> None:
        _check_version(version_in_use(connection), self._engine.url)

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()


def tables_version(url: str) -> int | None:
    """Return the version of a database's tables; None where it has none.

    Raises:
        CloudError: no such database, or its tables are another program's, or a newer edgegpu's.
        StoreError: the database refuses.
    """
    engine = open_engine(url)
    try:
        with explaining(engine.url), engine.connect() as connection:
            found = version_of(connection)
        check_not_newer(found)
        return found
    finally:
        engine.dispose()


def check_current(url: str) -> int | None:
    """Check that the tables of a database are those of this program; return their version, None where there are none.

    Raises:
        OlderTablesError: an older edgegpu has made them.
        CloudError: as `tables_version`.
    """
    found = tables_version(url)
    if found is not None:
        _check_version(found, make_url(url))
    return found


def _check_version(found: int, url: URL) -> None:
    ours = newest()
    check_not_newer(found)
    if found != ours:
        text = phrase(
            "cannot use %(what)s: its tables have version %(found)s, ours is %(ours)s",
            what=place_of(url),
            found=found,
            ours=ours,
        )
        raise OlderTablesError(text, remedy=phrase("run `edgegpu-cloud migrate` (docs/cloud/upgrade.md)"))


def migrate_tables(url: str, audited: Callable[[int], AuditEntry] | None = None) -> int | None:
    """Bring the tables of a database to this program's version; return the version that they had, None for no tables.

    `audited` makes of the version that they had an entry of the audit, which is stored in the same transaction.

    Raises:
        CloudError: they are a newer edgegpu's, or a reference would be broken: nothing has changed.
        StoreError: the database refuses: nothing has changed.
    """
    then = None if audited is None else lambda connection, found: add_audit(connection, audited(found))
    with explaining(make_url(url)):
        return upgrade(url, then=then)


def audit_store(url: str, entry: AuditEntry) -> None:
    """Store an entry of the audit in a database whose tables may have an earlier version.

    Raises:
        StoreError: the database refuses.
    """
    engine = open_engine(url)
    try:
        with explaining(make_url(url)), writing(engine).begin() as connection:
            add_audit(connection, entry)
    finally:
        engine.dispose()


@contextmanager
def explaining(url: URL) -> Iterator[None]:
    """Raise `StoreError` for the errors of a block that uses a database."""
    try:
        yield
    except SQLAlchemyError as error:
        raise explained(error, place_of(url)) from error


def place_of(url: URL) -> str:
    """Return where a database is, for people: without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or phrase("the store")
    host = url.host or url.query.get("host", phrase("this machine"))
    return phrase("the database %(name)s at %(host)s", name=url.database, host=host)


def _conflict(place: str) -> Phrase:
    return phrase("cannot use %(place)s: another change was in the way", place=place)


def _stall(place: str) -> Phrase:
    return phrase("cannot use %(place)s: this process stood still in the middle of the change", place=place)


_CONTENDED: Mapping[str, Callable[[str], Phrase]] = {
    "40001": _conflict,  # serialization_failure
    "40P01": _conflict,  # deadlock_detected
    "55P03": _conflict,  # lock_not_available
    "25P03": _stall,  # idle_in_transaction_session_timeout
}
"""What each of PostgreSQL's codes says of a database at a place; the change may be tried again."""


def explained(error: SQLAlchemyError, place: str) -> StoreError:
    """Return our error for one of the database's: the cause in a line, in English its driver's, and what to do."""
    driver = getattr(error, "orig", None)
    cause = " ".join(str(driver or error).partition("\n")[0].split())
    words = _CONTENDED.get(getattr(driver, "sqlstate", None) or "")
    if words is not None:
        met = words(place)
        text = on_pages(f"{met} ({cause})", met)
        return ContendedError(text, remedy=phrase("nothing was changed: try again"), words=cause)
    known = cause_of(cause, place)
    whole = phrase("cannot use %(place)s: %(cause)s", place=place, cause=known.what)
    kind = RecordError if isinstance(error, DataError | IntegrityError) else StoreError
    return kind(on_pages(f"cannot use {place}: {cause}", whole), remedy=known.remedy, words=cause)
