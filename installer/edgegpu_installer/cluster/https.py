"""HTTPS without the official client: TLS contexts with no key in a file, and one question with a deadline."""

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
    """Return the context; the official client would put the administrator's key into a file in /tmp, and leave it.

    Raises:
        ssl.SSLError, ValueError: certificate or key are not what they should be.
    """
    if not access.verify:
        urllib3.disable_warnings(InsecureRequestWarning)  # the file's owner has chosen so
    return tls_context(access)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTarget:
    """How a server is spoken with: its TLS context, and its name in the certificate where that is not the address."""

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
    """Ask once, over a connection of its own.

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
        raise OSError(f"it speaks no whole HTTP: {type(error).__name__} {error}") from error
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
