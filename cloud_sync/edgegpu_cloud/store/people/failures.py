"""Failed sign-ins, counted in the store so that all web processes agree."""

from collections.abc import Collection, Iterable
from dataclasses import asdict

from sqlalchemy import Connection, bindparam, delete, func, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.engine import upsert
from edgegpu_cloud.store.people.records import SignInFailures
from edgegpu_cloud.store.people.schema import SignInFailureRow
from edgegpu_cloud.store.schema import table

_FAILURES = table(SignInFailureRow)

MOST_KEYS = 20_000
"""Accounts and addresses whose failures are remembered; above that the oldest are forgotten."""


class SignInFailureTable:
    """The failed sign-ins of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, keys: Collection[str]) -> dict[str, SignInFailures]:
        """Return what counts against each of these keys."""
        query = select(_FAILURES).where(_FAILURES.c.key.in_(keys))
        found = {row["key"]: record_of(SignInFailures, row) for row in self._connection.execute(query).mappings().all()}
        return {key: found.get(key, SignInFailures(key)) for key in keys}

    def hold(self, keys: Collection[str]) -> dict[str, SignInFailures]:
        """Return the same, locked until the end of the transaction; a key that has no row gets one."""
        rows = [asdict(SignInFailures(key)) for key in sorted(keys)]
        self._connection.execute(upsert(self._connection, _FAILURES).on_conflict_do_nothing(), rows)
        query = select(_FAILURES.c.key).where(_FAILURES.c.key.in_(keys)).order_by(_FAILURES.c.key)
        self._connection.execute(query.with_for_update()).all()
        return self.get(keys)

    def put(self, failures: Iterable[SignInFailures]) -> None:
        """Update rows that are held."""
        rows = [{"at_key": one.key, **asdict(one)} for one in failures]
        if rows:
            self._connection.execute(update(_FAILURES).where(_FAILURES.c.key == bindparam("at_key")), rows)

    def forget(self, keys: Collection[str]) -> None:
        """Drop rows: nothing counts against these keys any more."""
        self._connection.execute(delete(_FAILURES).where(_FAILURES.c.key.in_(keys)))

    def forget_all(self, beginning: str) -> None:
        """Drop all rows whose keys begin so."""
        mine = _FAILURES.c.key.startswith(beginning, autoescape=True)
        self._connection.execute(delete(_FAILURES).where(mine))

    def sweep(self, before_s: float) -> None:
        """Drop rows without a try since then, and of more than `MOST_KEYS` the oldest."""
        c = _FAILURES.c
        self._connection.execute(delete(_FAILURES).where(c.last_at_s < before_s))
        many = self._connection.execute(select(func.count()).select_from(_FAILURES)).scalar_one() - MOST_KEYS
        if many > 0:
            oldest = select(c.key).order_by(c.last_at_s).limit(many)
            self._connection.execute(delete(_FAILURES).where(c.key.in_(oldest)))
