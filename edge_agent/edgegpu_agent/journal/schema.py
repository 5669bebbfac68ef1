"""The tables of the journal, and the migration of files of earlier versions."""

import sqlite3

APPLICATION_ID = 0x45475055
"""The application id of this SQLite file: the letters EGPU."""

VERSION = 1
OLDEST_READER = 1
"""The oldest version whose code may use a file of this one: an agent that was rolled back must not lose it."""

_TABLES = (
    "CREATE TABLE one (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE commands (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, live INTEGER NOT NULL, value TEXT NOT NULL, args TEXT NOT NULL
    )""",
    "CREATE INDEX commands_by_seq ON commands (live, seq)",
    "CREATE TABLE tries (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE outbox (
        place INTEGER PRIMARY KEY, part TEXT NOT NULL, key TEXT NOT NULL, alarm INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE (part, key)
    )""",
    """CREATE TABLE history (
        n INTEGER PRIMARY KEY, at_s INTEGER NOT NULL, kind TEXT NOT NULL, about TEXT NOT NULL, state TEXT NOT NULL,
        text TEXT NOT NULL, by TEXT NOT NULL
    )""",
)

_STEPS: dict[int, tuple[str, ...]] = {0: _TABLES}
"""The statements that migrate a file to the next version, by its version."""


class UnreadableError(Exception):
    """A file that this version cannot use as a journal; the text says why."""


def migrate(link: sqlite3.Connection) -> None:
    """Migrate the file to this version, in one transaction.

    Raises:
        UnreadableError: the file is another program's, or of a version that cannot be read.
    """
    version, owner = _pragma(link, "user_version"), _pragma(link, "application_id")
    if version and owner != APPLICATION_ID:
        raise UnreadableError(f"it is not a journal of edgegpu: its application id is {owner:#x}")
    if version > VERSION:
        _check_reader(link, version)
        return
    if version == VERSION:
        return
    link.execute("BEGIN IMMEDIATE")
    for step in range(version, VERSION):
        if step not in _STEPS:
            raise UnreadableError(f"it has version {version}, and this agent cannot upgrade it")
        for statement in _STEPS[step]:
            link.execute(statement)
    link.execute("INSERT OR REPLACE INTO one VALUES ('oldest_reader', ?)", (str(OLDEST_READER),))
    link.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    link.execute(f"PRAGMA user_version = {VERSION}")
    link.execute("COMMIT")


def _check_reader(link: sqlite3.Connection, version: int) -> None:
    row = link.execute("SELECT value FROM one WHERE name = 'oldest_reader'").fetchone()
    if row is None or int(row[0]) > VERSION:
        raise UnreadableError(f"it has version {version}, and this agent knows {VERSION}")


def _pragma(link: sqlite3.Connection, name: str) -> int:
    return int(link.execute(f"PRAGMA {name}").fetchone()[0])
