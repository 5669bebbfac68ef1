"""A webhook: the message about alerts, its signature, and one POST that trusts nobody's answer."""

import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from edgegpu_cloud.alerts.receiver_address import receiver_fault
from edgegpu_cloud.alerts.rules import Alert, AlertEvent
from edgegpu_sync.rules.evidence import one_line

VERSION = 1
"""The version of the message's form: docs/cloud/alerts.md has it."""

MOST_ALERTS = 50
"""Alerts that one message names; `count` has their number."""

_NAME, _TEXT = 253, 500
"""Characters of a name and of a text in a message: receivers put both into chats, mails and logs as they are."""

TIMEOUT_S = 10.0
_MOST_ANSWER_BYTES = 4_096
_WELL = range(200, 300)
_MOVED = range(300, 400)


class WebhookError(Exception):
    """A message was not taken; the text says why, and holds nothing that the receiver has chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """Where messages go. `secret` signs them. `local`: this machine and its link are allowed. `ca`: a file."""

    url: str
    secret: str
    local: bool = False
    ca: str | None = None


def message(
    event: AlertEvent, alerts: Sequence[Alert], *, names: Mapping[str, str], controller: str, now_s: float
) -> tuple[str, str]:
    """Return the id and the body of a message."""
    id_ = str(uuid.uuid4())
    body = {
        "v": VERSION,
        "id": id_,
        "event": event.value,
        "at": int(now_s),
        "controller": controller,
        "count": len(alerts),
        "alerts": [_alert(one, names) for one in alerts[:MOST_ALERTS]],
    }
    return id_, json.dumps(body, ensure_ascii=True)


def _alert(one: Alert, names: Mapping[str, str]) -> dict[str, object]:
    box = {"device": one.device, "name": one_line(names.get(one.device, ""), _NAME)} if one.device else None
    times = {"since": one.since_s, "firing": one.firing_at_s, "resolved": one.resolved_at_s}
    return {
        "number": one.number or None,
        "kind": one.kind.value,
        "box": box,
        "about": one_line(one.about, _NAME),
        "text": one_line(one.text, _TEXT),
        **{name: None if at_s is None else int(at_s) for name, at_s in times.items()},
    }


def signature(secret: str, body: str, *, at_s: int) -> str:
    """Return the value of X-Edgegpu-Signature: HMAC-SHA256 over the time, a dot and the body."""
    mac = hmac.new(secret.encode(), f"{at_s}.{body}".encode(), hashlib.sha256)
    return f"v1={mac.hexdigest()}"


def post(target: WebhookTarget, id_: str, body: str, *, now_s: float, timeout_s: float = TIMEOUT_S) -> None:
    """Send a message once. Redirects are not followed, proxies not used, and the answer's text is not kept.

    Raises:
        WebhookError: it was not taken.
    """
    try:
        parts = urlsplit(target.url)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError as error:
        raise WebhookError("cannot send to a receiver: its address is no URL, correct alerts.webhook.urls") from error
    at_s = int(now_s)
    headers = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "User-Agent": "edgegpu-cloud",
        "X-Edgegpu-Delivery": id_,
        "X-Edgegpu-Timestamp": str(at_s),
        "X-Edgegpu-Signature": signature(target.secret, body, at_s=at_s),
    }
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        context = ssl.create_default_context(cafile=target.ca)
        address = _address(host, port, local=target.local)
        link = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        plain = socket.create_connection((address, port), timeout=timeout_s)
        with plain:
            link.sock = context.wrap_socket(plain, server_hostname=host)
            with _ended_after(link.sock, 2 * timeout_s):
                link.request("POST", path, body.encode(), headers)
                answer = link.getresponse()
                answer.read(_MOST_ANSWER_BYTES)
                status = answer.status
            link.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise WebhookError(f"cannot reach {host}:{port}: {_cause(error)}") from error
    if status in _MOVED:
        raise WebhookError(f"{host} answers {status}: redirects are not followed, name the address itself")
    if status not in _WELL:
        raise WebhookError(f"{host} answers {status}")


def host_of(url: str) -> str:
    """Return host and port of a receiver's address, for people: the rest may be a secret."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return "https://…"


@contextmanager
def _ended_after(wire: socket.socket, seconds: float) -> Iterator[None]:
    """End a connection after a time: its timeout counts from each byte anew, and a receiver may send one at a time."""

    def end() -> None:
        with suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cause(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate: {error.verify_message}"
        case TimeoutError():
            return "no answer in time"
        case OSError() if error.strerror:
            return error.strerror
        case UnicodeError():
            return "no host can have this name, correct alerts.webhook.urls"
        case _:
            return type(error).__name__


def _address(host: str, port: int, *, local: bool) -> str:
    """Return the address that is connected to: the very one that was checked, so that no second answer of DNS counts.

    Raises:
        WebhookError: it is none that a receiver may have.
    """
    faults: list[str] = []
    for *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(where[0])
        fault = receiver_fault(address, local=local)
        if not fault:
            return address
        faults.append(fault)
    raise WebhookError(f"{host} {faults[0] if faults else 'has no address'}")
