"""The extender's HTTP server on loopback: mutual TLS, kept connections, a bounded number of them."""

import contextlib
import ipaddress
import logging
import socket
import socketserver
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_plugin.extender.errors import CertificateError, ExtenderError
from edgegpu_plugin.extender.handler import RequestHandler, RoutedServer, Routes

_log = logging.getLogger(__name__)

_HANDSHAKE_S = 5.0
_MOST_CONNECTIONS = 64
"""One scheduler keeps a handful; any process on the node can open some, and each costs a thread."""

_LAST_WORDS_S = 5.0
_ACCEPT_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the CA of the clients that may call."""

    cert: Path
    key: Path
    client_ca: Path

    def context(self) -> ssl.SSLContext:
        """Return a context that lets in only clients with a certificate of `client_ca`.

        Raises:
            CertificateError: a file cannot be read or is not what it should be.
        """
        for name, path in (("cert", self.cert), ("key", self.key), ("client_ca", self.client_ca)):
            try:
                path.open("rb").close()  # ssl's own errors name no file
            except OSError as error:
                raise _unreadable(f"extender.tls.{name} {path}", error) from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise _unreadable(f"extender.tls.cert {self.cert} with extender.tls.key {self.key}", error) from error
        try:
            context.load_verify_locations(self.client_ca)
        except OSError as error:
            raise _unreadable(f"extender.tls.client_ca {self.client_ca}", error) from error
        return context


class ExtenderServer:
    """Listens between `start` and `close`, as often as wanted; files are read anew at each start."""

    def __init__(self, listen: str, *, routes: Routes, tls: TlsFiles | None) -> None:
        """Prepare it.

        Args:
            listen: address and port, `127.0.0.1:8787`; port 0 takes any free one.
            routes: what answers which path.
            tls: None = plain HTTP, on loopback only: whoever reaches it can bind pods.

        Raises:
            ExtenderError: `listen` is no address and port, or not on loopback though there is no TLS.
        """
        self._address, family = _address(listen, plain=tls is None)
        self._listen = listen
        self._family = family
        self._routes = routes
        self._tls = tls
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, 0 while it does not."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def alive(self) -> bool:
        """Say whether it listens."""
        return self._thread is not None and self._thread.is_alive()

    def failed(self) -> bool:
        """Say whether it should listen and does not."""
        return self._server is not None and not self.alive()

    def start(self) -> None:
        """Begin to listen.

        Raises:
            ExtenderError: the port is taken, or a TLS file is not what it should be.
        """
        context = None if self._tls is None else self._tls.context()
        try:
            self._server = _Server(self._address, family=self._family, routes=self._routes, context=context)
        except OSError as error:
            raise ExtenderError(
                f"cannot listen on {self._listen}: {error.strerror}: end what holds the port (`ss -ltnp` shows it) "
                "or set extender.listen",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_ACCEPT_POLL_S,), name="extender listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end the connections; calls that are being answered get a few seconds to end."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        server.end_connections(_LAST_WORDS_S)
        if self._thread is not None:
            self._thread.join(_LAST_WORDS_S)
        self._thread = None


class _Server(RoutedServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        *,
        family: socket.AddressFamily,
        routes: Routes,
        context: ssl.SSLContext | None,
    ) -> None:
        self.address_family = family
        self.routes = routes
        self._context = context
        self._idle = threading.Condition()
        self._open: set[socket.socket] = set()
        self._ending = False
        super().__init__(address, RequestHandler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name, which asks DNS."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401  (socketserver's types)
        """Turn connections away when there are too many."""
        with self._idle:
            if len(self._open) < _MOST_CONNECTIONS:
                self._open.add(request)
                return True
        _log.warning("extender: more than %d connections, turning %s away", _MOST_CONNECTIONS, client_address)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve one connection in its own thread, the TLS handshake included: a slow client delays nobody else."""
        threading.current_thread().name = "extender connection"
        connection = request
        try:
            if self._context is not None:
                request.settimeout(_HANDSHAKE_S)
                connection = self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                self._count_instead(request, connection)
                connection.do_handshake()
            RequestHandler(connection, client_address, self)
        except OSError as error:
            _log.info("extender: connection from %s ended: %s", client_address, error)
        except Exception:  # noqa: BLE001  (the border of this connection)
            _log.exception("extender: connection from %s failed", client_address)
        finally:
            self.shutdown_request(request)
            self.shutdown_request(connection)

    def _count_instead(self, request: socket.socket, connection: ssl.SSLSocket) -> None:
        """Count the connection by its TLS socket from now on: wrapping left the other one empty."""
        with self._idle:
            self._open.discard(request)
            self._open.add(connection)
            if self._ending:
                raise ConnectionAbortedError("the extender is closing")

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Close a connection; one that is closed already stays so."""
        with self._idle:
            self._open.discard(request)
            self._idle.notify_all()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """Log that a connection could not even be given a thread."""
        _log.exception("extender: connection from %s failed", client_address)

    def end_connections(self, timeout_s: float) -> None:
        """End reading on all connections, so that idle ones end now and busy ones after their answer."""
        with self._idle:
            self._ending = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    # Not SSLSocket's own shutdown: that one drops the encryption, and the answer would go in clear.
                    socket.socket.shutdown(connection, socket.SHUT_RD)
            self._idle.wait_for(lambda: not self._open, timeout_s)


def _address(listen: str, *, plain: bool) -> tuple[tuple[str, int], socket.AddressFamily]:
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        number = int(port)
    except ValueError as error:
        raise ExtenderError(f"extender.listen: {listen!r} is no address and port: write e.g. 127.0.0.1:8787") from error
    if plain and not address.is_loopback:
        raise ExtenderError(
            f"extender.listen: {listen} without TLS lets anybody bind pods: listen on 127.0.0.1 or set extender.tls",
        )
    return (str(address), number), socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004


def _unreadable(what: str, error: OSError) -> CertificateError:
    cause = error.strerror or str(error)
    return CertificateError(f"cannot use {what}: {cause}: write the certificates anew or set extender.insecure: true")
