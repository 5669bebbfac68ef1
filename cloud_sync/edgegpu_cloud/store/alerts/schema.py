"""The tables of alerts, of webhooks, and of the messages that wait for them."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from edgegpu_cloud.store.schema import _NUMBER, Json, TableRow


class AlertRow(TableRow):
    """An alert: what is wrong, since when, whether anybody was told. `open_key` is empty (NULL) once it is over."""

    __tablename__ = "alerts"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    open_key: Mapped[str | None] = mapped_column(String(400), unique=True)
    kind: Mapped[str] = mapped_column(String(32))
    device: Mapped[str] = mapped_column(String(16), index=True)
    about: Mapped[str] = mapped_column(String(253))
    text: Mapped[str]
    since_s: Mapped[float]
    firing_at_s: Mapped[float | None]
    clear_since_s: Mapped[float | None]
    resolved_at_s: Mapped[float | None] = mapped_column(index=True)
    silenced_until_s: Mapped[float]
    silenced_by: Mapped[str]
    phrase: Mapped[Json | None]


class WebhookRow(TableRow):
    """A webhook that was made in the console or by the API; `secret` signs its messages."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    url: Mapped[str] = mapped_column(String(1_000), unique=True)
    secret: Mapped[str] = mapped_column(String(200))
    disabled: Mapped[bool]
    by: Mapped[str]
    at_s: Mapped[float]


class DeliveryRow(TableRow):
    """A message for a webhook, as it is sent each time; it goes when the receiver has taken it."""

    __tablename__ = "alert_deliveries"
    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(36))
    url: Mapped[str] = mapped_column(String(1_000))
    body: Mapped[str]
    at_s: Mapped[float]
    tries: Mapped[int]
    next_at_s: Mapped[float] = mapped_column(index=True)
    error: Mapped[str]
