"""The controllers that work with a database now, by their beats; its tables may be those of another version."""

import time

from sqlalchemy import inspect, make_url, text

from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.store import explaining

WATCH_S = 5.0
"""How long beats are watched: a controller raises its own each two seconds (`LeaseTimes.renew_s`)."""


def running_controllers(url: str, *, watch_s: float = WATCH_S) -> list[str]:
    """Return the controllers whose beats go on, as `NAME on HOST`, after watching them for `watch_s` seconds.

    Nobody's clock is asked. A database without controllers is not watched.

    Raises:
        StoreError: the database refuses.
    """
    before = _beats(url)
    if not before:
        return []
    time.sleep(watch_s)
    now = _beats(url)
    return sorted(f"{name} on {host}" for (name, host), beat in now.items() if before.get((name, host)) != beat)


def _beats(url: str) -> dict[tuple[str, str], tuple[str, int]]:
    engine = open_engine(url)
    try:
        with explaining(make_url(url)), engine.connect() as connection:
            if not inspect(connection).has_table("controllers"):
                return {}
            rows = connection.execute(text("SELECT name, host, instance, beat FROM controllers")).all()
    finally:
        engine.dispose()
    return {(row.name, row.host): (row.instance, row.beat) for row in rows}
