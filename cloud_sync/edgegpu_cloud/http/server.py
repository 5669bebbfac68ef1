"""The HTTPS server as a task: uvicorn on a socket that is bound before anything else starts."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.acceptor import ConnectionSlots, LimitedSocket
from edgegpu_cloud.http.rate_log import LogRateFilter, MinuteCounter

_LOG = logging.getLogger(__name__)

HEADERS_MAX_S = 20.0
HANDSHAKE_MAX_S = 20.0
"""A satellite link takes a second for each flight, and sends a lost one again after several."""

CONNECTIONS = 1_024
_KEEP_ALIVE_S = 5
_BACKLOG = 512
_BIND_TRIES, _BIND_PAUSE_S = 20, 0.05
_TICKS = 10
"""Ticks of uvicorn, ten a second, between two checks of the certificate's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of clients: seconds for TLS, for a request's head and for the end; the number of connections."""

    handshake_s: float = HANDSHAKE_MAX_S
    headers_s: float = HEADERS_MAX_S
    shutdown_s: float = 5.0
    connections: int = CONNECTIONS


class _TimeLimitedProtocol(H11Protocol):
    """A protocol that closes a connection without a whole request in time: before the first one, and after each.

    It keeps no access log either: the query in uvicorn's may hold somebody's token. `RequestGuard` logs.
    """

    patience_s = HEADERS_MAX_S
    quiet = _LOG

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  (as uvicorn has it)
        super().__init__(*args, **more)
        self.access_log = False
        self.logger = self.quiet
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._got_request()

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering():
            self._got_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._answering() and not self.transport.is_closing():
            self._await_request()

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _await_request(self) -> None:
        self._got_request()
        self._deadline = asyncio.get_running_loop().call_later(self.patience_s, self.transport.close)

    def _got_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Server(uvicorn.Server):
    """uvicorn with a limit for handshakes, for which it has no setting, a quiet log, and a check of the certificate."""

    def __init__(
        self, config: uvicorn.Config, *, patience: ServerLimits, minute: MinuteCounter, files: "_Files"
    ) -> None:
        super().__init__(config)
        self._patience, self._minute, self._files = patience, minute, files

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets; this replaces uvicorn's own `startup`."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note)
        await self.lifespan.startup()

        def protocol() -> asyncio.Protocol:
            made: Any = self.config.http_protocol_class
            found: asyncio.Protocol = made(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return found

        self.servers = [
            await loop.create_server(
                protocol,
                sock=one,
                ssl=self.config.ssl,
                backlog=_BACKLOG,
                ssl_handshake_timeout=self._patience.handshake_s,
                ssl_shutdown_timeout=self._patience.shutdown_s,
            )
            for one in sockets or []
        ]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Log the counts, and check the certificate's files; uvicorn calls this ten times a second."""
        self._minute.tell()
        if counter % _TICKS == 0:
            self._files.reload_if_changed()
        return await super().on_tick(counter)

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count errors of connections; a traceback of each would fill the disk."""
        text, error = str(context.get("message", "a fault")), context.get("exception")
        if self._minute.note(text):
            _LOG.error("%s: %r", text, error, exc_info=None if isinstance(error, OSError) else error)


class _Files:
    """Certificate and key on the disk: loaded again when one of them is another file, or another text, than before."""

    def __init__(self, context: ssl.SSLContext, cert: Path, key: Path) -> None:
        self._context, self._cert, self._key = context, cert, key
        self._seen = self._stat()

    def reload_if_changed(self) -> None:
        """Load both again if they have changed; where they cannot be used, those of before stay."""
        if (now := self._stat()) == self._seen:
            return
        self._seen = now
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)  # half of it may be loaded
            self._context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            _LOG.error("%s; what was shown before is shown on", _unusable(self._cert, self._key, error))
        else:
            _LOG.info("%s has changed: it is shown to those who connect from here on", self._cert)

    def _stat(self) -> list[tuple[int, int, int]]:
        found = []
        for path in (self._cert, self._key):
            try:
                at = path.stat()
                found.append((at.st_ino, at.st_mtime_ns, at.st_size))
            except OSError:
                found.append((0, 0, 0))
        return found


class HttpsServer:
    """The HTTPS server, which listens at once and serves while `run` runs."""

    def __init__(
        self, app: ASGIApp, *, host: str, port: int, cert: Path, key: Path, patience: ServerLimits | None = None
    ) -> None:
        """Bind the port.

        Args:
            app: answers the requests.
            host: address to listen on.
            port: 0 for any that is free.
            cert: certificate with its chain, PEM; read again when its file changes.
            key: its private key, PEM.
            patience: how long a client may take.

        Raises:
            CloudError: the address is taken, or certificate and key cannot be used.
        """
        patience = patience or ServerLimits()
        minute = MinuteCounter(_LOG)
        self._places = ConnectionSlots(
            patience.connections, closed=lambda: minute.note("connections closed to make room")
        )
        self._socket = _bound(host, port)
        self._socket.places = self._places
        try:
            quiet = logging.Logger("edgegpu_cloud.http.uvicorn", logging.WARNING)  # noqa: LOG001  (of this server alone)
            quiet.addHandler(LogRateFilter(minute, _LOG))
            config = _config(app, cert=cert, key=key, patience_s=patience.headers_s, quiet=quiet)
            context: Any = config.ssl
            files = _Files(context, cert, key)
            self._server = _Server(config, patience=patience, minute=minute, files=files)
        except BaseException:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many connections there are, those in their handshake among them."""
        return self._places.taken

    def run(self) -> None:
        """Serve until `stop`, then close the socket."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End `run`; what is being answered gets a moment."""
        self._server.should_exit = True


def _bound(host: str, port: int) -> LimitedSocket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = LimitedSocket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, host, port)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CloudError(
            f"cannot listen on {host} port {port}: {error}",
            remedy=f"who has it: `ss -ltnp | grep {port}`; or put https.host, https.port in controller.yaml right",
        ) from error
    return listener


def _bind(listener: socket.socket, host: str, port: int) -> None:
    """Bind the socket; a process of ours that was killed a moment ago may still have the port."""
    for left in reversed(range(_BIND_TRIES)):
        try:
            listener.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not left:
                raise
            time.sleep(_BIND_PAUSE_S)
        else:
            return


def _config(app: ASGIApp, *, cert: Path, key: Path, patience_s: float, quiet: logging.Logger) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        loop="asyncio",  # the loop that calls `accept` of the socket it is given
        http=type("Impatient", (_TimeLimitedProtocol,), {"patience_s": patience_s, "quiet": quiet}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
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
