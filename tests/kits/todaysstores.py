"""Stores in the database of the day: SQLite and PostgreSQL take turns where tests do not run on both each time."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kits import postgres
from kits.daily import today, turns
from kits.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer

    from edgegpu_cloud.store.store import ControllerStore

ENGINES = ("sqlite", "postgresql")
CHOICE = "TEST_DATABASE"


def engine_of_the_day() -> str:
    """Return the engine: TEST_DATABASE, else the day's; SQLite where no PostgreSQL is installed, but not in CI.

    Where files have their turns, a file gets the other engine each time that its turn comes.
    """
    if chosen := os.environ.get(CHOICE):
        if chosen not in ENGINES:
            raise ValueError(f"{CHOICE} is {chosen}: give one of {', '.join(ENGINES)}")
        return chosen
    if not os.environ.get("CI") and postgres.programs() is None:
        return ENGINES[0]
    return ENGINES[today() // turns() % 2]


class TodaysStores:
    """Makes databases of one engine; each is removed at the end of its block."""

    def __init__(self, folder: Path, server: PostgresServer | None) -> None:
        """Take a folder for SQLite files, and the server where it shall be PostgreSQL."""
        self._folder, self.server = folder, server
        self._numbers = itertools.count(1)

    @contextmanager
    def url(self, *, empty: bool = False) -> Iterator[str]:
        """Yield the URL of a database for `open_store`; PostgreSQL's has its tables, unless it shall be empty."""
        if self.server is None:
            yield f"sqlite:///{self.new_file()}"
            return
        url = self.server.new_database() if empty else self.server.new_store()
        try:
            yield url
        finally:
            self.server.drop(url)

    @contextmanager
    def opened(self) -> Iterator[ControllerStore]:
        """Yield a store with its tables and nothing in them."""
        with self.url() as url:
            store = open_store(url)
            try:
                yield store
            finally:
                store.close()

    def new_file(self) -> Path:
        """Return the path of a SQLite file that is not there yet."""
        return self._folder / f"store-{next(self._numbers)}.db"
