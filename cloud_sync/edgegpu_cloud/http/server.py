"""The HTTPS server as a task: uvicorn on a socket that is bound before anything else is started."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgegpu_cloud.errors import CloudError

_LOG = logging.getLogger(__name__)

HEADERS_MAX_S = 20.0
_CONNECTIONS = 512
_KEEP_ALIVE_S = 5
_BACKLOG = 512


class _Impatient(H11Protocol):
    """Closes a connection on which no request has begun in time: idle ones would take all places that there are.

    It keeps no access log either: uvicorn's has the query in it, where somebody may have put a token; `Guard` logs.
    """

    patience_s = HEADERS_MAX_S

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  (as uvicorn has it)
        super().__init__(*args, **more)
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(self.patience_s, self._check)

    def _check(self) -> None:
        begun: object = self.cycle
        if begun is None and not self.transport.is_closing():
            self.transport.close()


class HttpsServer:
    """Listens at once, serves while `run` runs."""

    def __init__(
        self, app: ASGIApp, *, host: str, port: int, cert: Path, key: Path, patience_s: float = HEADERS_MAX_S
    ) -> None:
        """Bind.

        Args:
            app: what requests come to.
            host: address to listen on.
            port: 0 for any that is free.
            cert: certificate with its chain, PEM.
            key: its private key, PEM.
            patience_s: how long a connection may be there before its first request has come whole.

        Raises:
            CloudError: the address is taken, or certificate and key cannot be used.
        """
        self._cert, self._key = cert, key
        self._socket = _bound(host, port)
        try:
            self._server = uvicorn.Server(_config(app, cert=cert, key=key, patience_s=patience_s))
        except BaseException:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._socket.getsockname()[1]
        return port

    def reload(self) -> None:
        """Show the certificate that lies in the file now, to those who connect from here on.

        Raises:
            CloudError: it cannot be used; the one before stays.
        """
        context: Any = self._server.config.ssl
        try:
            context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(self._cert, self._key, error) from error

    def run(self) -> None:
        """Serve until `stop`; the socket is closed then."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run` return: what is being answered gets a moment."""
        self._server.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CloudError(
            f"cannot listen on {host} port {port}: {error}",
            remedy=f"who has it: `ss -ltnp | grep {port}`; or put https.host, https.port in controller.yaml right",
        ) from error
    return listener


def _config(app: ASGIApp, *, cert: Path, key: Path, patience_s: float) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=type("Impatient", (_Impatient,), {"patience_s": patience_s}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise _unusable(cert, key, error) from error
    context: Any = config.ssl
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


def _unusable(cert: Path, key: Path, error: Exception) -> CloudError:
    return CloudError(f"cannot use {cert} with {key}: {error}", remedy="restore both from a backup")
