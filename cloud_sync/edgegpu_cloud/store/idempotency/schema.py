"""The table of idempotency keys."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class IdempotencyRow(TableRow):
    """A request that a client may send again under its key, and the answer that it then gets.

    `key` is the SHA-256 of the key, `request` that of the request. `claim` names the try that may make the change;
    `done` is written in the transaction of the change, `answer` after it, encrypted.
    """

    __tablename__ = "idempotency_keys"
    by: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    request: Mapped[str] = mapped_column(String(64))
    claim: Mapped[str] = mapped_column(String(32))
    at_s: Mapped[float] = mapped_column(index=True)
    done: Mapped[bool]
    answer: Mapped[str | None]
