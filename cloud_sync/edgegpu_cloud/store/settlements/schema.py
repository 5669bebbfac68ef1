"""The table of settlements."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class SettlementRow(TableRow):
    """How a box has settled one request of an item, and when the controller has stored that."""

    __tablename__ = "settlements"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    item: Mapped[str] = mapped_column(String(400), primary_key=True)
    rev: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    retry: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    enrolment: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    code: Mapped[str] = mapped_column(String(40))
    text: Mapped[str]
    at_s: Mapped[float]
