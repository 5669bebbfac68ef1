"""The journal: it loads the contents for the rules, and saves changes in one transaction, with fsync."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from edgegpu_agent.journal import codec, loading
from edgegpu_agent.journal.contents import HistoryEntry, JournalContents
from edgegpu_agent.journal.disk_space import JournalPages, free_pages
from edgegpu_agent.journal.errors import BoxJournalError, JournalFullError
from edgegpu_agent.journal.files import is_elsewhere, open_file
from edgegpu_agent.journal.saving import ContentDiff, write
from edgegpu_agent.journal.schema import OLDEST_READER
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import OutboxSizes
from edgegpu_sync.rules.replay_guard import MEMORY
from edgegpu_sync.wire import Json

MOST_HISTORY = 2_000
"""How many lines of history are kept."""

_FORGET_STEP = 256

Hook = Callable[[str, ContentDiff], None]
"""Called with "before" or "after" a commit, and what it writes; tests of faults trace it, or end the process there."""

DEFAULT_LIMITS = OutboxSizes()


class BoxJournal:
    """The journal in one file, owned by one thread; each `save` is on the disk completely, or not at all."""

    def __init__(
        self,
        path: Path,
        *,
        limits: OutboxSizes = DEFAULT_LIMITS,
        room: JournalPages | None = None,
        wall_s: Callable[[], float],
        hook: Hook = lambda _when, _change: None,
    ) -> None:
        """Build the box journal.

        Args:
            path: the path of the file; its folder is made.
            limits: sizes of the outbox.
            room: the pages of the file; derived from the limits by default.
            wall_s: seconds since 1970, for people.
            hook: see `Hook`.

        Raises:
            BoxJournalError: the file cannot be opened, or the disk has no room for it.
        """
        self._limits = limits
        self._room = room or JournalPages.of(limits)
        self._wall_s = wall_s
        self._hook = hook
        self._path = path
        opened = open_file(path, room=self._room, wall_s=wall_s)
        self._link = opened.link
        self.told = opened.told
        """Why this journal is new although there was another one; else empty. It stays until the next enrolment."""
        self.held: JournalContents | None = None
        """The contents that were loaded or saved last."""

    def load(self, *, enrolment: int, root: str) -> JournalContents:
        """Return the contents; start with empty ones where the journal is of an earlier enrolment.

        Args:
            enrolment: the number of this box's enrolment.
            root: the public root key that was pinned with it.

        Raises:
            BoxJournalError: the journal cannot be read, or is of a later enrolment: the identity comes from a copy.
        """
        held = self._read()
        if held is not None and held.replay_guard.enrolment > enrolment:
            raise BoxJournalError(
                f"cannot go on: the journal is of enrolment {held.replay_guard.enrolment}, the identity of "
                f"{enrolment}, so it was put back from a copy; enrol this box again"
            )
        if held is None or held.replay_guard.enrolment < enrolment:
            held = JournalContents.fresh(enrolment=enrolment, root=root, limits=self._limits)
            self._begin(held)
        self.told = loading.one(self._link, "told") or ""
        self.held = held
        return held

    def _read(self) -> JournalContents | None:
        """Read the contents; set the file aside, and return None, where they cannot be read."""
        try:
            return loading.load(self._link, self._limits)
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            self._link.close()
            if is_elsewhere(error):
                raise BoxJournalError(f"cannot read the journal {self._path}: {error}; see the disk") from error
            why = f"{type(error).__name__}: {error}"
            opened = open_file(self._path, room=self._room, wall_s=self._wall_s, unusable=why)
            self._link, self.told = opened.link, opened.told
            return None

    def _begin(self, held: JournalContents) -> None:
        change = ContentDiff(before=None, after=held)
        with self._step(change):
            for table in ("one", "commands", "tries", "notes", "outbox"):
                self._link.execute(f"DELETE FROM {table} WHERE TRUE")  # noqa: S608  (names of ours)
            loading.put(self._link, "told", self.told)
            loading.put(self._link, "oldest_reader", str(OLDEST_READER))
            write(self._link, change)

    def save(
        self,
        held: JournalContents,
        *,
        bodies: Mapping[CommandId | Stamp, bytes] | None = None,
        notes: Mapping[str, Json | None] | None = None,
        told: Sequence[HistoryEntry] = (),
        spare: bool = False,
    ) -> None:
        """Write what has changed since the last save, in one transaction; it is on the disk when this returns.

        Args:
            held: the new contents.
            bodies: the bodies of new results (their data), events and metrics in the outbox.
            notes: notes by item; None removes one.
            told: new lines of history; left out where room is short.
            spare: the write can wait: it is refused where room is short.

        Raises:
            JournalFullError: nothing was written; try again later.
            BoxJournalError: the file cannot be written.
        """
        short = self.free_pages < self._room.spare_from(len(held.outbox.open))
        if short and spare:
            raise JournalFullError("cannot take more: the journal keeps its remaining room for results")
        change = ContentDiff(
            before=self.held,
            after=held,
            bodies=bodies or {},
            notes=notes or {},
            told=() if short else told,
            at_s=int(self._wall_s()),
            most_told=MOST_HISTORY,
        )
        with self._step(change):
            write(self._link, change)
        self.held = held

    @contextlib.contextmanager
    def _step(self, change: ContentDiff) -> Iterator[None]:
        """Make one transaction; the hook is called before and after its commit."""
        try:
            self._link.execute("BEGIN IMMEDIATE")
            yield
            self._hook("before", change)
            self._link.execute("COMMIT")
        except BaseException as error:
            if self._link.in_transaction:
                self._link.execute("ROLLBACK")
            if not isinstance(error, sqlite3.Error):
                raise
            kind = JournalFullError if error.sqlite_errorcode == sqlite3.SQLITE_FULL else BoxJournalError
            raise kind(f"cannot write the journal: {error}") from error
        self._hook("after", change)

    @property
    def free_pages(self) -> int:
        """The number of free pages."""
        return free_pages(self._link)

    def recall(self, id_: CommandId) -> CommandRecord | None:
        """Return a command that has ended and whose result has its receipt; None when the id is not remembered."""
        row = self._link.execute("SELECT id, value, args FROM commands WHERE id = ?", (id_,)).fetchone()
        return None if row is None else codec.record_of(*row)

    def forgettable(self, held: JournalContents) -> int | None:
        """Return the seq up to which ids may be forgotten, for `ReplayGuard.forgets`; None while there is room."""
        count = int(self._link.execute("SELECT count(*) FROM commands WHERE live = 0").fetchone()[0])
        if count < MEMORY + _FORGET_STEP:
            return None
        query = "SELECT seq FROM commands WHERE live = 0 ORDER BY seq LIMIT 1 OFFSET ?"
        seq = int(self._link.execute(query, (count - MEMORY - 1,)).fetchone()[0])
        seq = min(seq, held.replay_guard.floor, *(one.seq - 1 for one in held.records.values()))
        return seq if seq > held.replay_guard.forgotten else None

    def body(self, key: CommandId | Stamp) -> bytes | None:
        """Return the body in the outbox for a command's id or a stamp."""
        text = codec.stamp_text(key) if isinstance(key, Stamp) else key
        row = self._link.execute("SELECT body FROM outbox WHERE key = ?", (text,)).fetchone()
        return None if row is None else bytes(row[0])

    def note(self, name: str) -> Json | None:
        """Return the note of an item; None when there is none."""
        row = self._link.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        value: Json = json.loads(row[0])
        return value

    def history(self, limit: int) -> list[HistoryEntry]:
        """Return the newest lines of history, the newest first."""
        rows = self._link.execute(
            "SELECT n, at_s, kind, about, state, text, by FROM history ORDER BY n DESC LIMIT ?", (limit,)
        )
        return [
            HistoryEntry(n=n, at_s=at_s, kind=kind, about=about, state=state, text=text, by=by)
            for n, at_s, kind, about, state, text, by in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._link.close()
