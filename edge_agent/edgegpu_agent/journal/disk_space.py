"""The journal's disk space: reserved once and never exceeded, so that the journal works on a full disk.

SQLite alone does not guarantee this. Its file and its log grow page by page, and after a commit that found room only in
the log the file cannot even be emptied. So the file gets all its pages at the start and may have no more
(`max_page_count`). The log gets more than it will ever use, and a second name: SQLite removes the log when the file is
closed cleanly, and could not make another one on a full disk.
"""

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_base.files import sync_folder
from edgegpu_sync.rules.outbox import OutboxSizes

PAGE_BYTES = 4_096
CHECKPOINT_PAGES = 256
"""After so many pages the log is written into the file, and begins anew."""

_STEP_PAGES = 192
_WAL_HEADER_BYTES = 32
_FRAME_BYTES = PAGE_BYTES + 24
_RESULT_PAGES = 4


@dataclass(frozen=True, slots=True)
class JournalPages:
    """The numbers of pages of the file and of its log."""

    pages: int
    log_pages: int = 3 * CHECKPOINT_PAGES

    @classmethod
    def of(cls, limits: OutboxSizes) -> "JournalPages":
        """Return the pages for these limits: outbox, remembered ids, arguments, desired state, notes and history."""
        kept = (limits.events_bytes + limits.metrics_bytes) * 3 // 2 // PAGE_BYTES
        return cls(_RESULT_PAGES * limits.results + limits.refusals // 2 + kept + 1_024)

    @property
    def mib(self) -> int:
        """The MiB of file and log on the disk."""
        return -(-(self.pages + self.log_pages) * PAGE_BYTES // 2**20)

    def spare_from(self, results: int) -> int:
        """Return how many pages must be free for a write that can wait, with `results` results still to be written."""
        return _RESULT_PAGES * (results + 1) + 128


def log_of(path: Path) -> Path:
    """Return the path of a file's log."""
    return path.with_name(path.name + "-wal")


def _second(path: Path) -> Path:
    return path.with_name(path.name + "-room")


def restore_log(path: Path) -> None:
    """Give the log its name back, which a clean close has removed; call this before the file is opened.

    The log's contents are in the file by then, so its header is cleared: it only keeps the room, and SQLite reads
    nothing from it.
    """
    log, second = log_of(path), _second(path)
    if log.exists() or not second.exists():
        return
    with second.open("r+b") as file:
        file.write(bytes(_WAL_HEADER_BYTES))
        file.flush()
        os.fsync(file.fileno())
    os.link(second, log)


def name_log(path: Path) -> None:
    """Give the log its second name; call this after the file was opened.

    Raises:
        OSError: the folder cannot be written.
    """
    log, second = log_of(path), _second(path)
    if second.exists() and second.samefile(log):
        return
    second.unlink(missing_ok=True)
    os.link(log, second)
    sync_folder(path.parent)


def set_aside_room(link: sqlite3.Connection, path: Path, room: JournalPages) -> None:
    """Make file and log as large as they will ever be; return at once if they are.

    Raises:
        BoxJournalError: the disk has no room for them now.
    """
    try:
        _fill(link, path, room)
    except sqlite3.OperationalError as error:
        with contextlib.suppress(sqlite3.Error):
            link.execute("ROLLBACK")
        raise BoxJournalError(
            f"cannot set aside {room.mib} MiB for the journal {path}: {error}; make room there"
        ) from error
    link.execute(f"PRAGMA max_page_count = {room.pages}").fetchone()


def _fill(link: sqlite3.Connection, path: Path, room: JournalPages) -> None:
    link.execute("DROP TABLE IF EXISTS filler")
    size, log = path.stat().st_size, _size(log_of(path))
    if size >= room.pages * PAGE_BYTES and log >= room.log_pages * _FRAME_BYTES:
        return
    link.execute("CREATE TABLE filler (room BLOB)")
    while pages(link) < room.pages:
        _add(link, min(_STEP_PAGES, room.pages - pages(link)))
        checkpoint(link)
    if _size(log_of(path)) < room.log_pages * _FRAME_BYTES:
        link.execute("DELETE FROM filler")
        _add(link, room.log_pages)
    checkpoint(link)
    link.execute("DROP TABLE filler")
    checkpoint(link)


def _add(link: sqlite3.Connection, count: int) -> None:
    link.execute("BEGIN IMMEDIATE")
    link.executemany("INSERT INTO filler VALUES (zeroblob(4000))", [()] * count)
    link.execute("COMMIT")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def pages(link: sqlite3.Connection) -> int:
    """Return how many pages the file has."""
    return int(link.execute("PRAGMA page_count").fetchone()[0])


def free_pages(link: sqlite3.Connection) -> int:
    """Return how many pages of the file are free."""
    return int(link.execute("PRAGMA freelist_count").fetchone()[0])


def checkpoint(link: sqlite3.Connection) -> None:
    """Write the log into the file."""
    link.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
