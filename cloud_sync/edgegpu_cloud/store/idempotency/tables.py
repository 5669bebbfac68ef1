"""Idempotency keys in a transaction."""

from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Connection, delete, select, update

from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.engine import upsert
from edgegpu_cloud.store.idempotency.schema import IdempotencyRow
from edgegpu_cloud.store.schema import table

_KEYS = table(IdempotencyRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key that a client has chosen for a request; `at_s`: when the try that `claim` names began.

    `done`: the change is made. `answer` is None until it is stored.
    """

    by: str
    key: str
    request: str
    claim: str
    at_s: float
    done: bool = False
    answer: str | None = None


class IdempotencyTable:
    """The idempotency keys of one transaction."""

    def __init__(self, connection: Connection, *, hold: bool) -> None:
        """Use a connection; `hold`: a key that is read here is locked, because it is to be written."""
        self._connection, self._hold = connection, hold

    def get(self, by: str, key: str) -> IdempotencyKey | None:
        """Return a person's key."""
        query = select(_KEYS).where(_KEYS.c.by == by, _KEYS.c.key == key)
        if self._hold:
            query = query.with_for_update()
        row = self._connection.execute(query).mappings().one_or_none()
        return None if row is None else record_of(IdempotencyKey, row)

    def add(self, new: IdempotencyKey) -> bool:
        """Write a new key; return whether nobody else has written it meanwhile."""
        insert = upsert(self._connection, _KEYS).values(asdict(new))
        query = insert.on_conflict_do_nothing().returning(_KEYS.c.claim)
        return self._connection.execute(query).one_or_none() is not None

    def take_over(self, old: IdempotencyKey, *, claim: str, now_s: float) -> None:
        """Let another try make the change: the one before it cannot any more."""
        where = (_KEYS.c.by == old.by) & (_KEYS.c.key == old.key)
        self._connection.execute(update(_KEYS).where(where).values(claim=claim, at_s=now_s))

    def mark_done(self, claimed: IdempotencyKey) -> bool:
        """Note that the change is made; return whether this try still has the claim."""
        return self._connection.execute(update(_KEYS).where(_claimed(claimed)).values(done=True)).rowcount == 1

    def put_answer(self, claimed: IdempotencyKey, answer: str) -> None:
        """Store the answer of a change that is made."""
        self._connection.execute(update(_KEYS).where(_claimed(claimed)).values(done=True, answer=answer))

    def release(self, claimed: IdempotencyKey) -> None:
        """Drop the key of a try that has changed nothing."""
        self._connection.execute(delete(_KEYS).where(_claimed(claimed), _KEYS.c.done.is_(False)))

    def forget(self, before_s: float) -> None:
        """Drop keys that were chosen before then."""
        self._connection.execute(delete(_KEYS).where(_KEYS.c.at_s < before_s))


def _claimed(one: IdempotencyKey) -> ColumnElement[bool]:
    return (_KEYS.c.by == one.by) & (_KEYS.c.key == one.key) & (_KEYS.c.claim == one.claim)
