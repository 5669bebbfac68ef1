"""The tables of the store, in SQL that SQLite and PostgreSQL both have."""

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = dict[str, Any]

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""A key that the database counts up; SQLite does so for INTEGER alone."""


_NAMES = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""The name of each index and constraint: a revision that changes one has to name it, on every database."""


class TableRow(DeclarativeBase):
    """The base of all tables. Rows stay in this package: the store returns dataclasses."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {str: Text, int: BigInteger, float: Float(53), Json: JSON, list[str]: JSON}  # noqa: RUF012


def table(row: type[TableRow]) -> Table:
    """Return the table behind a class, for statements on many rows at once."""
    found = row.__table__
    if not isinstance(found, Table):
        raise TypeError(f"{row.__name__} is no table")
    return found


class MetaRow(TableRow):
    """Numbers of the whole store: schema version, the counter of changes by people; and numbers of each partition.

    No row is written by all controllers: they write those of their partitions, or the leader alone does.
    """

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[int]


class BoxRow(TableRow):
    """A box: its identity, its numbers, and what is to be done for it next."""

    __tablename__ = "boxes"
    device: Mapped[str] = mapped_column(String(16), primary_key=True)
    partition: Mapped[int] = mapped_column(index=True)
    name: Mapped[str] = mapped_column(String(253), unique=True)
    labels: Mapped[Json]
    state: Mapped[str] = mapped_column(String(16))
    public: Mapped[str] = mapped_column(String(43))
    host: Mapped[str] = mapped_column(String(253), default="")
    added_at_s: Mapped[float]
    enrolled_at_s: Mapped[float]
    enrolment: Mapped[int]
    instance: Mapped[str] = mapped_column(String(64), index=True)
    epoch_count: Mapped[int | None]
    epoch_nonce: Mapped[str | None] = mapped_column(String(16))
    next_seq: Mapped[int]
    rev: Mapped[int]
    digest: Mapped[str] = mapped_column(String(16))
    restored: Mapped[bool]
    key_set: Mapped[int]
    online: Mapped[bool]
    seen_at_s: Mapped[float]
    spec_rev: Mapped[int]
    told_rev: Mapped[int]
    observed_rev: Mapped[int]
    applied_rev: Mapped[int]
    look_at_s: Mapped[float | None] = mapped_column(index=True)
    looks: Mapped[int]
    touched: Mapped[int] = mapped_column(index=True)


class SpecRow(TableRow):
    """A box's desired documents, by revision.

    `changed`: the number of the change by a person that made it, as `NoteTable.changed` counts them; None: an earlier
    version of the store has written the document.
    """

    __tablename__ = "specs"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    rev: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    spec: Mapped[Json]
    at_s: Mapped[float]
    by: Mapped[str]
    changed: Mapped[int | None]


class CommandRow(TableRow):
    """A command: the request, and its state on the box. `next_at_s` is when something is to be sent, if ever."""

    __tablename__ = "commands"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(40), unique=True)
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"))
    op: Mapped[str] = mapped_column(String(80))
    args: Mapped[Json]
    by: Mapped[str]
    at_s: Mapped[float]
    due_at_s: Mapped[float]
    cancelled: Mapped[bool]
    seq: Mapped[int | None]
    state: Mapped[str | None] = mapped_column(String(16))
    code: Mapped[str]
    text: Mapped[str]
    data: Mapped[Json | None]
    attempts: Mapped[int]
    signed_count: Mapped[int | None]
    signed_nonce: Mapped[str | None] = mapped_column(String(16))
    quiet_since_s: Mapped[float]
    tries: Mapped[int]
    stamp_enrolment: Mapped[int | None]
    stamp_count: Mapped[int | None]
    stamp_nonce: Mapped[str | None] = mapped_column(String(16))
    stamp_n: Mapped[int | None]
    ended: Mapped[bool]
    ended_at_s: Mapped[float | None] = mapped_column(index=True)
    next_at_s: Mapped[float | None] = mapped_column(index=True)
    sent_at_s: Mapped[float | None]
    __table_args__ = (Index("commands_of_box", "device", "ended", "number"),)


class HistoryRow(TableRow):
    """The history of commands, one row for each change of state."""

    __tablename__ = "history"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    command: Mapped[str] = mapped_column(String(40), index=True)
    at_s: Mapped[float]
    state: Mapped[str] = mapped_column(String(16))
    code: Mapped[str]
    text: Mapped[str]


class LatestRow(TableRow):
    """The last message of each kind that a box has sent, and its stamp. Allocations are merged."""

    __tablename__ = "latest"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    enrolment: Mapped[int]
    count: Mapped[int]
    nonce: Mapped[str] = mapped_column(String(16))
    n: Mapped[int]
    at_s: Mapped[float]
    body: Mapped[Json]


class BirthRow(TableRow):
    """The last births of a box."""

    __tablename__ = "births"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), index=True)
    enrolment: Mapped[int]
    count: Mapped[int]
    nonce: Mapped[str] = mapped_column(String(16))
    at_s: Mapped[float]


class EventRow(TableRow):
    """Something that happened on a box."""

    __tablename__ = "events"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), index=True)
    kind: Mapped[str]
    level: Mapped[str] = mapped_column(String(16))
    text: Mapped[str]
    about: Mapped[str]
    box_at: Mapped[int]
    at_s: Mapped[float]
    transaction: Mapped[Json | None]


class OrphanRow(TableRow):
    """The end of a command that this store does not know: it was asked for after the store's backup."""

    __tablename__ = "orphans"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    op: Mapped[str] = mapped_column(String(80))
    state: Mapped[str] = mapped_column(String(16))
    code: Mapped[str]
    text: Mapped[str]
    at_s: Mapped[float]


class KeySetRow(TableRow):
    """One link of the chain of controllers' keys, as the root signed it."""

    __tablename__ = "key_sets"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[str]
    sig: Mapped[str] = mapped_column(String(86))


class TokenRow(TableRow):
    """An enrolment token, by the SHA-256 of its text: the text itself is shown once and never kept."""

    __tablename__ = "tokens"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    label: Mapped[str]
    by: Mapped[str]
    at_s: Mapped[float]
    expires_at_s: Mapped[float]
    uses: Mapped[int]
    used: Mapped[int]
    approval: Mapped[bool]
    name: Mapped[str]
    labels: Mapped[Json]
    revoked: Mapped[bool]
    __table_args__ = (Index("tokens_in_order", "at_s", "digest"), Index("tokens_by_end", "expires_at_s"))


class RequestRow(TableRow):
    """One attempt of a box to enrol; the same attempt again gets the same answer."""

    __tablename__ = "requests"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    token: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64))
    asked: Mapped[Json]
    answer: Mapped[Json | None]
    device: Mapped[str | None] = mapped_column(String(16))
    at_s: Mapped[float]
    __table_args__ = (
        Index("requests_of_token", "token", "at_s", "id"),
        Index("requests_of_state", "state", "at_s", "id"),
    )


class CertificateRow(TableRow):
    """A certificate that was issued to a box."""

    __tablename__ = "certificates"
    serial: Mapped[str] = mapped_column(String(48), primary_key=True)
    device: Mapped[str] = mapped_column(String(16), index=True)
    enrolment: Mapped[int]
    csr_sha256: Mapped[str] = mapped_column(String(64), index=True)
    pem: Mapped[str]
    not_before_s: Mapped[float]
    not_after_s: Mapped[float] = mapped_column(index=True)
    revoked_at_s: Mapped[float | None] = mapped_column(index=True)


class AlarmRow(TableRow):
    """An alarm: something that a person has to check; `seen_by` is empty until one has."""

    __tablename__ = "alarms"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    at_s: Mapped[float]
    kind: Mapped[str] = mapped_column(String(64))
    device: Mapped[str] = mapped_column(String(16), index=True)
    text: Mapped[str]
    times: Mapped[int]
    seen_by: Mapped[str]
    phrase: Mapped[Json | None]


class AuditRow(TableRow):
    """A change by a person: who, when, what."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("audit_by_part", "part_of", "number"),
        Index("audit_by_time", "at_s", "part_of", "number"),
    )
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    at_s: Mapped[float]
    by: Mapped[str] = mapped_column(index=True)
    what: Mapped[str] = mapped_column(String(64), index=True)
    device: Mapped[str] = mapped_column(String(16), index=True)
    detail: Mapped[Json]
    part_of: Mapped[str | None] = mapped_column(String(64))
    """The change of many boxes that this entry is a part of, as `detail` has it: for the index."""
