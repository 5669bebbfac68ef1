"""The tables of operations."""

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import Json, TableRow


class OperationRow(TableRow):
    """A change of many boxes."""

    __tablename__ = "operations"
    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    args: Mapped[Json]
    by: Mapped[str]
    at_s: Mapped[float]
    selector: Mapped[str]
    key: Mapped[str | None] = mapped_column(String(64))
    boxes: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), index=True)
    ended_at_s: Mapped[float | None]
    filter: Mapped[Json | None]
    per_box: Mapped[bool | None]
    request: Mapped[str | None] = mapped_column(String(16))
    """The digest of what was asked for: the same again under the same key is the same operation."""
    seen_change: Mapped[int | None]
    undoes: Mapped[str | None] = mapped_column(String(26))
    __table_args__ = (Index("operations_by_key", "by", "key", unique=True),)


class OperationBoxRow(TableRow):
    """A box of an operation, and what came of it there; a box that is forgotten stays in what was done."""

    __tablename__ = "operation_boxes"
    operation: Mapped[str] = mapped_column(ForeignKey("operations.id"), primary_key=True)
    device: Mapped[str] = mapped_column(String(16), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(16))
    text: Mapped[str]
    remedy: Mapped[str]
    rev: Mapped[int | None]
    command: Mapped[str | None] = mapped_column(String(40), index=True)
    items: Mapped[Json]
    force: Mapped[bool]
    args: Mapped[Json | None]
    seen_rev: Mapped[int | None]
    before: Mapped[Json | None]
    text_phrase: Mapped[Json | None]
    remedy_phrase: Mapped[Json | None]
    __table_args__ = (
        Index("operation_boxes_by_outcome", "operation", "outcome", "device"),
        Index("operation_boxes_of_box", "device", "outcome"),
    )
