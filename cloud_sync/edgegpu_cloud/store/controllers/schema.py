"""The tables by which several controllers share the boxes of one store: partitions, server times, controllers."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import TableRow


class PartitionRow(TableRow):
    """The lease of a partition: its holder (empty: nobody), and the fence, which each change of holder raises."""

    __tablename__ = "partitions"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    holder: Mapped[str] = mapped_column(String(64))
    fence: Mapped[int]


class ServerTimeRow(TableRow):
    """The latest time that boxes of a partition received, seconds since 1970.

    It has a table of its own: enrolment writes it while it holds a box, and a controller that holds the lease waits for
    that box.
    """

    __tablename__ = "server_times"
    partition: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_s: Mapped[int]


class ControllerRow(TableRow):
    """A controller that shares the boxes; no other one writes its row while it lives."""

    __tablename__ = "controllers"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    instance: Mapped[str] = mapped_column(String(32))
    beat: Mapped[int]
    place: Mapped[str] = mapped_column(String(64))
    host: Mapped[str]
    seen_at_s: Mapped[float]


class ControllerCertificateRow(TableRow):
    """The end of a controller's certificate, its request for a new one, and the answer; empty where there is none."""

    __tablename__ = "controller_certificates"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    ends_at_s: Mapped[float]
    request: Mapped[str]
    answer: Mapped[str]
