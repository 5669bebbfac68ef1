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


class ForwardedAddresses:
    """The application with the addresses that named proxies forward; those of others do not count.

    A proxy is believed by its address alone where it is another machine. Each user of this machine can send from each
    of this machine's addresses: a proxy here shows the secret, and so does every proxy where there is one.
    """

    def __init__(self, application: Any, *, proxies: Sequence[str], secret: str = "") -> None:  # noqa: ANN401  (uvicorn types ASGI in its own way)
        """Take the application, addresses or networks of proxies, and the secret that they show; empty: none."""
        self._plain: ASGIApp = application
        self._behind = cast("ASGIApp", ProxyHeadersMiddleware(application, trusted_hosts=list(proxies)))
        self._secret = secret.encode()
        self._is_told = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, of which the application does not see the secret."""
        if scope["type"] != "http":
            await self._plain(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        shown = [value for name, value in headers if name == SECRET_HEADER]
        scope["headers"] = [(name, value) for name, value in headers if name != SECRET_HEADER]
        application = self._behind if self._is_believed(scope, shown) else self._plain
        await application(scope, receive, send)

    def _is_believed(self, scope: Scope, shown: Sequence[bytes]) -> bool:
        if self._secret:
            return len(shown) == 1 and hmac.compare_digest(shown[0], self._secret)
        client = scope.get("client")
        if client is None or not is_own_address(client[0]):
            return True
        if not self._is_told and any(name == _FORWARDED for name, _ in scope["headers"]):
            self._is_told = True
            _LOG.warning(
                "what %s forwards does not count: it is an address of this machine, from which each of its users can "
                "send; set console.proxy_secret_file, and let the proxy send its line as X-Edgegpu-Proxy",
                client[0],
            )
        return False
