"""HTTPS without the official client: TLS contexts without a key in a file, and one request with a deadline."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import urllib3
from urllib3.exceptions import InsecureRequestWarning

from edgegpu_base.kube.kubeconfig import ApiAccess, tls_context

_MOST_BYTES = 32 * 1024 * 1024


def access_context(access: ApiAccess) -> ssl.SSLContext:
    """Return the TLS context; the official client would write the administrator's key to a file in /tmp and leave it.

    Raises:
        ssl.SSLError, ValueError: the certificate or the key is not valid.
    """
    if not access.verify:
        urllib3.disable_warnings(InsecureRequestWarning)  # the kubeconfig's owner chose it
    return tls_context(access)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTarget:
    """How to connect to a server: TLS context, timeout, and its name in the certificate if that is not the address."""

    context: ssl.SSLContext | None
    server_name: str | None = None
    timeout_s: float = 10.0


def ask(
    url: str,
    way: TlsTarget,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """Send one request over a connection of its own, and return the answer.

    Raises:
        OSError: no connection, no answer in time, or TLS does not hold (ssl.SSLError is one).
    """
    parts = urlsplit(url)
    link = _connection(parts, way)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        link.request(method, target, body, dict(headers or {}))
        answer = link.getresponse()
        return HttpResponse(answer.status, dict(answer.getheaders()), answer.read(_MOST_BYTES))
    except http.client.HTTPException as error:
        raise OSError(f"the answer is not complete HTTP: {type(error).__name__} {error}") from error
    finally:
        link.close()


def _connection(parts: SplitResult, way: TlsTarget) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=way.timeout_s)
    link = http.client.HTTPSConnection(host, parts.port, timeout=way.timeout_s, context=way.context)
    if way.server_name and way.context is not None:
        plain = socket.create_connection((host, parts.port or 443), way.timeout_s)
        try:
            link.sock = way.context.wrap_socket(plain, server_hostname=way.server_name)
        except OSError:
            plain.close()
            raise
    return link
