"""The addresses that proxies forward: which proxies are believed."""

import hmac
import logging
from collections.abc import Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from edgegpu_base.own_addresses import is_own_address

_LOG = logging.getLogger(__name__)

SECRET_HEADER = b"x-edgegpu-proxy"
_FORWARDED = b"x-forwarded-for"
_MOST_WARNINGS = 8
"""Anybody may send that header: what they fill of the log is bounded."""


class ForwardedAddresses:
    """The application with the addresses that named proxies forward; those of others do not count.

    A proxy is believed by its address alone where it is another machine. Each user of this machine can send from each
    of this machine's addresses: a proxy here shows the secret, and so does every proxy where there is one.
    """

    def __init__(self, application: Any, *, proxies: Sequence[str], secret: str = "") -> None:  # noqa: ANN401  (uvicorn types ASGI in its own way)
        """Take the application, addresses or networks of proxies, and the secret that they show; empty: none."""
        self._plain: ASGIApp = application
        behind = ProxyHeadersMiddleware(application, trusted_hosts=list(proxies))
        self._behind, self._named = cast("ASGIApp", behind), behind.trusted_hosts
        self._secret = secret.encode()
        self._warned: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, of which the application does not see the secret."""
        if scope["type"] != "http":
            await self._plain(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        shown = [value for name, value in headers if name == SECRET_HEADER]
        scope["headers"] = [(name, value) for name, value in headers if name != SECRET_HEADER]
        refusal = self._refusal(scope, shown)
        if refusal and any(name == _FORWARDED for name, _ in headers):
            self._warn(scope, refusal)
        application = self._plain if refusal else self._behind
        await application(scope, receive, send)

    def _refusal(self, scope: Scope, shown: Sequence[bytes]) -> str:
        """Return why what the client forwards does not count, and what helps; empty where it counts."""
        client = scope.get("client")
        if client is None or client[0] not in self._named:
            return "it is no proxy that console.trusted_proxies names; if it is yours, name its address there"
        if self._secret:
            is_shown = len(shown) == 1 and hmac.compare_digest(shown[0], self._secret)
            return "" if is_shown else "it does not send the line of console.proxy_secret_file as X-Edgegpu-Proxy"
        if is_own_address(client[0]):
            return (
                "it is an address of this machine, from which each of its users can send; set "
                "console.proxy_secret_file, and let the proxy send its line as X-Edgegpu-Proxy"
            )
        return ""

    def _warn(self, scope: Scope, refusal: str) -> None:
        """Log a refusal, once for each address: all people behind a proxy are one address as long as it lasts."""
        address = scope["client"][0] if scope.get("client") else "-"
        if address not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(address)
            _LOG.warning("what %s forwards of addresses does not count: %s", address, refusal)
