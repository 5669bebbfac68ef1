"""The opening of the journal's file: check, migration and disk space; an unusable file is set aside."""

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgegpu_agent.journal import disk_space as rooms
from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.journal.schema import UnreadableError, migrate
from edgegpu_base.files import sync_folder

_LOG = logging.getLogger(__name__)

MOST_ASIDE = 2
"""How many unusable files are kept, the newest ones."""


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """The open file; `told` says why it is new although there was another one."""

    link: sqlite3.Connection
    told: str = ""


def open_file(
    path: Path, *, room: rooms.JournalPages, wall_s: Callable[[], float], unusable: str = ""
) -> OpenedJournal:
    """Open the file; create it where there is none that can be used.

    Args:
        path: the path of the file.
        room: the size of the file and its log.
        wall_s: seconds since 1970, for the name of a file that is set aside.
        unusable: why the present file cannot be used, where that is known already.

    Raises:
        BoxJournalError: the file cannot be made, another process has it, or there is no room.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        rooms.restore_log(path)
        told = _set_aside(path, why=unusable, wall_s=wall_s) if unusable else ""
        try:
            link = _connect(path)
        except (UnreadableError, sqlite3.DatabaseError) as error:
            if is_elsewhere(error):
                raise
            told = _set_aside(path, why=str(error), wall_s=wall_s)
            link = _connect(path)
        try:
            rooms.set_aside_room(link, path, room)
            rooms.name_log(path)
            path.chmod(0o600)
        except BaseException:
            link.close()
            raise
    except (OSError, sqlite3.Error, UnreadableError) as error:
        needs = f"it needs {room.mib} MiB there, and no other agent may run"
        raise BoxJournalError(f"cannot open the journal {path}: {error}; {needs}") from error
    return OpenedJournal(link, told)


def is_elsewhere(error: Exception) -> bool:
    """Return whether the file itself is not at fault: another process has it, the disk is full or cannot be read."""
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return error.sqlite_errorname.startswith(
        ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")
    )


def _connect(path: Path) -> sqlite3.Connection:
    link = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
    try:
        for pragma in (
            "locking_mode = EXCLUSIVE",  # nobody else may write, and there is no shared memory, which would need room
            "journal_mode = WAL",
            "synchronous = FULL",
            f"wal_autocheckpoint = {rooms.CHECKPOINT_PAGES}",
            "secure_delete = OFF",  # on by default in Debian: it would overwrite each freed page
            "cache_size = 64",
            "temp_store = MEMORY",
        ):
            link.execute(f"PRAGMA {pragma}").fetchall()
        link.execute("BEGIN IMMEDIATE")
        link.execute("COMMIT")
        _check(link)
        migrate(link)
    except BaseException:
        link.close()
        raise
    return link


def _check(link: sqlite3.Connection) -> None:
    found = link.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise UnreadableError(f"it is damaged: {found}")


def _set_aside(path: Path, *, why: str, wall_s: Callable[[], float]) -> str:
    """Move the file and its log away, and return a sentence about it for people."""
    place = path.with_name(f"{path.name}.aside-{int(wall_s())}")
    path.replace(place)
    for name in (rooms.log_of(path), path.with_name(path.name + "-room"), path.with_name(path.name + "-shm")):
        with contextlib.suppress(FileNotFoundError):
            name.unlink() if name.name.endswith(("-room", "-shm")) else name.replace(rooms.log_of(place))
    old = sorted(path.parent.glob(f"{path.name}.aside-*[0-9]"))[:-MOST_ASIDE]
    for one in old:
        one.unlink(missing_ok=True)
        rooms.log_of(one).unlink(missing_ok=True)
    sync_folder(path.parent)
    told = f"the journal could not be used ({why}); it was set aside as {place}, and this box has to be enrolled again"
    _LOG.error("%s", told)
    return told
