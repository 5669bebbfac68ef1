"""Webhooks as people make them in the console or by the API, beside the receivers of controller.yaml."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from edgegpu_cloud.alerts.webhook import WebhookTarget, host_of
from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.entries import Author, audit, difference
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import MOST_RECEIVERS, AlertConfig, ReceiverUrl
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.alerts.webhooks import StoredWebhook
from edgegpu_cloud.store.store import ControllerStore, Transaction

_URL: TypeAdapter[str] = TypeAdapter(ReceiverUrl)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook as people see it. Of the address it has the host alone: the rest may be a secret.

    `id` is empty where `controller.yaml` has it, which alone changes it. `waiting` counts the messages that wait for
    it, `error` is that of the last one that was tried and not taken.
    """

    id: str
    host: str
    disabled: bool
    by: str
    at_s: float | None
    waiting: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook that was just made, with its secret, which nobody sees again."""

    webhook: WebhookView
    secret: str


def receiver_urls(tx: Transaction, config: AlertConfig) -> list[str]:
    """Return the addresses that messages go to now, each once: those of the file, and those that people have made."""
    return list(dict.fromkeys([*config.webhook.urls, *(one.url for one in tx.webhooks.all() if not one.disabled)]))


def target_of(tx: Transaction, config: AlertConfig, url: str) -> WebhookTarget | None:
    """Return the receiver at an address, with the secret that signs; None where there is none any more.

    Whether a receiver may be on this machine, and the CA of receivers, says the file alone.
    """
    webhook = config.webhook
    secret = webhook.secret if url in webhook.urls else None
    if secret is None:
        secret = next((one.secret for one in tx.webhooks.all() if one.url == url and not one.disabled), None)
    if secret is None:
        return None
    return WebhookTarget(url=url, secret=secret, local=webhook.allow_local, ca=webhook.ca or None)


class Webhooks:
    """One person's way to the webhooks; every method may raise ForbiddenError and StoreError."""

    def __init__(
        self,
        store: ControllerStore,
        config: AlertConfig,
        *,
        access: Access,
        send_test: Callable[[Transaction, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take a store; `send_test` lets a test message wait for an address, `clock` returns seconds since 1970."""
        self._store, self._config, self._access, self._clock = store, config, access, clock
        self._send_test = send_test

    def all(self) -> Sequence[WebhookView]:
        """Return all webhooks: those of the file first."""
        self._access.require(Permission.SETTINGS)
        with self._store.read() as tx:
            urls = [_view(tx, url) for url in self._config.webhook.urls]
            return [*urls, *(_view(tx, one.url, one) for one in tx.webhooks.all())]

    def get(self, id_: str) -> WebhookView:
        """Return a webhook; NotFoundError where there is none."""
        self._access.require(Permission.SETTINGS)
        with self._store.read() as tx:
            found = _find(tx, id_)
            return _view(tx, found.url, found)

    def create(self, url: str) -> NewWebhook:
        """Make a webhook, and its secret.

        Raises:
            CloudError: the address can be none of a receiver, or there are too many.
            ConflictError: there is one with this address.
        """
        self._access.require(Permission.SETTINGS)
        try:
            address = _URL.validate_python(url.strip())
        except ValidationError as error:
            raise CloudError(
                phrase("cannot make a webhook: this is no HTTPS address of a receiver"),
                remedy=phrase("give an address as https://hooks.example.com/PATH"),
            ) from error
        secret, id_ = secrets.token_hex(32), secrets.token_hex(8)
        by = self._access.by
        made = StoredWebhook(id=id_, url=address, secret=secret, by=by, at_s=self._clock())
        with self._store.write() as tx:
            there = tx.webhooks.all()
            self._check_room(address, [one.url for one in there])
            tx.webhooks.add(made)
            self._audit(tx, AuditKind.WEBHOOK_ADDED, made)
            return NewWebhook(webhook=_view(tx, address, made), secret=secret)

    def _check_room(self, url: str, there: Sequence[str]) -> None:
        urls = [*self._config.webhook.urls, *there]
        if url in urls:
            raise ConflictError(
                phrase("cannot make a webhook: there is one with this address"),
                remedy=phrase("delete that one first; its secret cannot be shown again"),
            )
        if len(urls) >= MOST_RECEIVERS:
            raise CloudError(
                phrase("cannot make a webhook: there are %(most)s, and no more are taken", most=MOST_RECEIVERS),
                remedy=phrase("delete one that is not needed any more"),
            )

    def disable(self, id_: str, *, disabled: bool) -> WebhookView:
        """Disable or enable a webhook; messages that wait for a disabled one are dropped."""
        self._access.require(Permission.SETTINGS)
        kind = AuditKind.WEBHOOK_DISABLED if disabled else AuditKind.WEBHOOK_ENABLED
        with self._store.write() as tx:
            found = _find(tx, id_)
            if found.disabled is not disabled:
                tx.webhooks.disable(found, disabled=disabled)
                self._audit(tx, kind, found)
            after = _find(tx, id_)
            return _view(tx, after.url, after)

    def delete(self, id_: str) -> None:
        """Delete a webhook, and the messages that wait for it."""
        self._access.require(Permission.SETTINGS)
        with self._store.write() as tx:
            found = _find(tx, id_)
            tx.webhooks.delete(found)
            self._audit(tx, AuditKind.WEBHOOK_REMOVED, found)

    def test(self, id_: str) -> WebhookView:
        """Let a test message wait for a webhook; CloudError where it is disabled."""
        self._access.require(Permission.SETTINGS)
        with self._store.write() as tx:
            found = _find(tx, id_)
            if found.disabled:
                raise CloudError(
                    phrase("cannot send a test to %(host)s: this webhook is disabled", host=host_of(found.url)),
                    remedy=phrase("enable it first"),
                )
            self._send_test(tx, found.url)
            return _view(tx, found.url, found)

    def _audit(self, tx: Transaction, kind: AuditKind, webhook: StoredWebhook) -> None:
        host = {"host": host_of(webhook.url)}
        change = {
            AuditKind.WEBHOOK_ADDED: difference({}, host),
            AuditKind.WEBHOOK_DISABLED: difference({"disabled": False}, {"disabled": True}),
            AuditKind.WEBHOOK_ENABLED: difference({"disabled": True}, {"disabled": False}),
            AuditKind.WEBHOOK_REMOVED: difference(host, {}),
        }[kind]
        audit(tx, Author(self._access.by, self._clock()), kind, change, detail={"id": webhook.id, **host})


def _find(tx: Transaction, id_: str) -> StoredWebhook:
    found = tx.webhooks.get(id_.replace("\0", ""))
    if found is None:
        raise NotFoundError(
            phrase("cannot find webhook %(id)s", id=id_), remedy=phrase("look at the list of webhooks again")
        )
    return found


def _view(tx: Transaction, url: str, stored: StoredWebhook | None = None) -> WebhookView:
    count, error = tx.webhooks.waiting(url)
    return WebhookView(
        id=stored.id if stored else "",
        host=host_of(url),
        disabled=stored is not None and stored.disabled,
        by=stored.by if stored else "",
        at_s=stored.at_s if stored else None,
        waiting=count,
        error=error,
    )
