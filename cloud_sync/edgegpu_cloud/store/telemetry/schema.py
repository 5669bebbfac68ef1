"""The tables of evidence and of the use of cards."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class EvidenceRow(TableRow):
    """What `nvidia-smi -L` printed in one container when it was checked last."""

    __tablename__ = "evidence"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    uid: Mapped[str] = mapped_column(String(64), primary_key=True)
    container: Mapped[str] = mapped_column(String(253), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(253))
    pod: Mapped[str] = mapped_column(String(253))
    verdict: Mapped[str] = mapped_column(String(16))
    held: Mapped[list[str]]
    seen: Mapped[list[str]]
    lines: Mapped[str]
    text: Mapped[str]
    at_s: Mapped[float] = mapped_column(index=True)


class CardUseRow(TableRow):
    """The use of one card in a quarter of an hour: sums and maxima over its samples. `quarter_s` is its beginning."""

    __tablename__ = "card_use"
    device: Mapped[str] = mapped_column(ForeignKey("boxes.device"), primary_key=True)
    quarter_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, index=True)
    card: Mapped[str] = mapped_column(String(64), primary_key=True)
    samples: Mapped[int]
    core_sum: Mapped[float]
    core_max: Mapped[float]
    memory_sum_mib: Mapped[float]
    memory_max_mib: Mapped[int]
