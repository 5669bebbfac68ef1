"""The turns of those who write to a SQLite store: one that writes again and again lets the others write in between."""

import threading
import time
from pathlib import Path
from typing import Self

from kits.stores import open_store

from edgegpu_cloud.store.store import ControllerStore


class BusyWriter:
    """Writes, one transaction right after the other; it counts them."""

    def __init__(self, store: ControllerStore) -> None:
        self._store, self._over = store, threading.Event()
        self.done = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            with self._store.write() as tx:
                tx.notes.changed()
                time.sleep(0.02)
            self.done += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_one_that_writes_again_and_again_lets_others_write_in_between(tmp_path: Path) -> None:
    store, other = open_store(tmp_path / "db"), open_store(tmp_path / "db")
    waited = []
    with BusyWriter(store) as busy:
        for _ in range(10):
            time.sleep(0.03)
            before = busy.done
            with other.write() as tx:
                tx.notes.changed()
                waited.append(busy.done - before)
    assert sum(waited) <= 2 * len(waited), waited
    for each in (store, other):
        each.close()


def test_a_folder_that_is_gone_is_the_database_s_error(tmp_path: Path) -> None:
    """Whoever cannot wait for a turn asks SQLite, which says what is wrong."""
    store = open_store(tmp_path / "of" / "db")
    with store.write() as tx:
        tx.notes.changed()
    (tmp_path / "of").rename(tmp_path / "elsewhere")
    with store.write() as tx:  # the file is open, and stays writable
        tx.notes.changed()
    store.close()
