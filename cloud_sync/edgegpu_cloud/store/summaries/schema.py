"""The tables by which boxes are listed: a summary of each box, its labels one by one, and its apps."""

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class SummaryRow(TableRow):
    """What lists show of a box and filter by, kept in step with what the box has said and what people have asked.

    `changed` is the number, of those of the box's partition, of the last transaction in which anything changed that
    lists show. The row of a forgotten box stays for a while, so that whoever asks what has changed hears of it: that is
    why it refers to no box, and has the partition itself.
    """

    __tablename__ = "box_summaries"
    device: Mapped[str] = mapped_column(String(16), primary_key=True)
    partition: Mapped[int]
    changed: Mapped[int]
    health: Mapped[str] = mapped_column(String(8))
    agent: Mapped[str]
    plugin: Mapped[str]
    k3s: Mapped[str]
    driver: Mapped[str]
    cards: Mapped[int | None]
    shared_cards: Mapped[int]
    units: Mapped[int]
    free_units: Mapped[int]
    sharing: Mapped[bool]
    open_items: Mapped[int]
    open_commands: Mapped[int]
    waiting: Mapped[int]
    problems: Mapped[int]
    cluster: Mapped[str] = mapped_column(index=True)
    claim: Mapped[str]
    holder: Mapped[bool]
    left: Mapped[str] = mapped_column(String(16))
    __table_args__ = (Index("box_summaries_by_change", "partition", "changed"),)


class LabelRow(TableRow):
    """One label of a box, as `boxes.labels` has it."""

    __tablename__ = "box_labels"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))
    __table_args__ = (Index("box_labels_by_value", "key", "value"),)


class AppRow(TableRow):
    """An app on a box, as NAMESPACE/APP: its pods hold shares there, or (`requested`) its limits were requested."""

    __tablename__ = "box_apps"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    requested: Mapped[bool] = mapped_column(primary_key=True)
    app: Mapped[str] = mapped_column(primary_key=True, index=True)
