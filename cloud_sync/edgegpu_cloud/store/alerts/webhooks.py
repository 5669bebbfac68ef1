"""Webhooks that people have made, in one transaction."""

from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, func, insert, select, update

from edgegpu_cloud.store.alerts.schema import DeliveryRow, WebhookRow
from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.schema import table

_WEBHOOKS, _WAITING = table(WebhookRow), table(DeliveryRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """A webhook: where messages go, and the secret that signs them. `disabled`: nothing is sent."""

    id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    disabled: bool = False
    by: str
    at_s: float


class WebhookTable:
    """The webhooks of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[StoredWebhook]:
        """Return all webhooks, the first first."""
        rows = self._connection.execute(select(_WEBHOOKS).order_by(_WEBHOOKS.c.at_s, _WEBHOOKS.c.id)).mappings().all()
        return [record_of(StoredWebhook, row) for row in rows]

    def get(self, id_: str) -> StoredWebhook | None:
        """Return a webhook."""
        row = self._connection.execute(select(_WEBHOOKS).where(_WEBHOOKS.c.id == id_)).mappings().one_or_none()
        return None if row is None else record_of(StoredWebhook, row)

    def add(self, webhook: StoredWebhook) -> None:
        """Write a new webhook."""
        self._connection.execute(insert(_WEBHOOKS).values(values_of(webhook)))

    def disable(self, webhook: StoredWebhook, *, disabled: bool) -> None:
        """Disable or enable a webhook; messages that wait for a disabled one are dropped."""
        self._connection.execute(update(_WEBHOOKS).where(_WEBHOOKS.c.id == webhook.id).values(disabled=disabled))
        if disabled:
            self._drop_waiting(webhook)

    def delete(self, webhook: StoredWebhook) -> None:
        """Delete a webhook, and the messages that wait for it."""
        self._connection.execute(delete(_WEBHOOKS).where(_WEBHOOKS.c.id == webhook.id))
        self._drop_waiting(webhook)

    def _drop_waiting(self, webhook: StoredWebhook) -> None:
        self._connection.execute(delete(_WAITING).where(_WAITING.c.url == webhook.url))

    def waiting(self, url: str) -> tuple[int, str]:
        """Return how many messages wait for a receiver, and the error of the one that was tried last."""
        c = _WAITING.c
        count = self._connection.execute(select(func.count()).select_from(_WAITING).where(c.url == url)).scalar_one()
        tried = select(c.error).where(c.url == url, c.tries > 0).order_by(c.next_at_s.desc()).limit(1)
        return int(count), self._connection.execute(tried).scalar_one_or_none() or ""
