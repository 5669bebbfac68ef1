"""The tables of rollouts."""

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import Json, TableRow

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""As in `schema`: a key that SQLite counts up has to be INTEGER."""


class RolloutRow(TableRow):
    """A rollout: what is changed, how, and where it stands."""

    __tablename__ = "rollouts"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(16))
    subject: Mapped[str] = mapped_column(String(1024))
    change: Mapped[Json]
    strategy: Mapped[Json]
    by: Mapped[str]
    at_s: Mapped[float]
    waves: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), index=True)
    wave: Mapped[int]
    waived: Mapped[int]
    held: Mapped[bool]
    returns: Mapped[bool]
    reason: Mapped[str]
    ended_at_s: Mapped[float | None] = mapped_column(index=True)
    reason_phrase: Mapped[Json | None]
    seen_change: Mapped[int | None]


class RolloutBoxRow(TableRow):
    """A box of a rollout. It outlives the box: a rollout shows boxes that were forgotten since."""

    __tablename__ = "rollout_boxes"
    rollout: Mapped[int] = mapped_column(ForeignKey("rollouts.number"), primary_key=True)
    device: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(253))
    position: Mapped[int]
    wave: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int]
    message: Mapped[str]
    next_try_at_s: Mapped[float | None]
    since_s: Mapped[float]
    changed: Mapped[bool]
    rev: Mapped[int]
    command: Mapped[str | None] = mapped_column(String(40))
    before: Mapped[Json | None]
    wrote: Mapped[Json | None]
    others: Mapped[list[str]]
    checked_s: Mapped[float]
    message_phrase: Mapped[Json | None]
    __table_args__ = (
        Index("rollout_boxes_of_state", "rollout", "state", "wave", "position"),
        Index("rollout_boxes_in_order", "rollout", "position"),
        Index("rollout_boxes_of_device", "device"),
    )
