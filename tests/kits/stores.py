"""A controller's store for a test: its tables are made once in a test process, and each SQLite store begins as a copy.

The revisions take a tenth of a second of computing, a copy none. `tests/unit/cloud/test_migrations.py` runs them.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from edgegpu_cloud.store.store import CommitMoment, ControllerStore

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def _with_tables() -> bytes:
    """Return a SQLite file that has the tables and nothing in them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "controller.db"
        ControllerStore.open_file(path).close()
        return path.read_bytes()


def open_store(place: str | Path, watcher: Callable[[CommitMoment], None] = lambda _: None) -> ControllerStore:
    """Open the store of a URL, or of a SQLite file; one that is not there yet gets its tables."""
    url = f"sqlite:///{place}" if isinstance(place, Path) else place
    if url.startswith("sqlite:"):
        path = Path(make_url(url).database or "")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(_with_tables())
    return ControllerStore.open(url, watcher=watcher)
