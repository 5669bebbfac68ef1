"""The extender's HTTP server on loopback: mutual TLS, kept connections, a bounded number of them."""

import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any, Protocol

from edgegpu_plugin.config.schema import Tls
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.extender.acceptor import Acceptor, ConnectionLimits

_log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""The limit of one request: a thousand whole nodes, from a scheduler that sends those, are about 20 MiB."""

_KEPT_S = 300.0
"""How long an idle connection is kept: longer than by Go's clients (90 s), so that the server never closes it first."""


class BadRequest(Exception):  # noqa: N818  (named as HTTP names it)
    """The request's body is invalid for its path; the text says why."""


class NotReadyError(Exception):
    """The request cannot be answered at present; the text says why."""


class Routes(Protocol):
    """The routes of the server, from request body to response body."""

    @property
    def posts(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """The functions that answer POST, by path; they raise BadRequest and NotReadyError."""

    def health(self) -> tuple[bool, str]:
        """Return whether the extender is healthy, with a text."""


class RequestHandler(BaseHTTPRequestHandler):
    """The HTTP/1.1 handler of one connection; it sends an answer in one packet if possible."""

    server: "_Server"
    protocol_version = "HTTP/1.1"
    server_version = "edgegpu"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = _KEPT_S
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer a health check."""
        if self.path != "/healthz":
            self._answer(HTTPStatus.NOT_FOUND, f"no path {self.path}\n")
            return
        well, words = self.server.routes.health()
        self._answer(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, words + "\n")

    def do_POST(self) -> None:
        """Answer a verb. The scheduler takes every status but 200 as an error, so a failure here is safe."""
        body = self._body()
        if body is None:
            return
        verb = self.server.routes.posts.get(self.path)
        if verb is None:
            self._answer(HTTPStatus.NOT_FOUND, f"no path {self.path}\n")
            return
        try:
            answer = verb(body)
        except BadRequest as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"{error}\n")
        except NotReadyError as error:
            _log.warning("extender: %s: %s", self.path, error)
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")
        except Exception:  # noqa: BLE001  (the border of this request)
            _log.exception("extender: %s failed", self.path)
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "edgegpu extender failed: see its log\n")
        else:
            self._answer(HTTPStatus.OK, answer)

    def _body(self) -> bytes | None:
        """Read the body; None when it was refused and answered."""
        text = self.headers.get("Content-Length")
        if text is None or not text.isascii() or not text.isdigit():
            self.close_connection = True
            self._answer(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed\n")
            return None
        if int(text) > MOST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BYTES} bytes\n")
            return None
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            self.close_connection = True
            return None
        return body

    def _answer(self, status: HTTPStatus, body: bytes | str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (http.server's name)
        """Log a request as debug: a busy scheduler makes many."""
        _log.debug("extender: %s", format % args)


class ExtenderError(PluginError):
    """The extender cannot listen; the text names the setting and the remedy."""


class CertificateError(ExtenderError):
    """A TLS file is missing or invalid: an error of the configuration, which a restart does not fix."""


_MOST_CONNECTIONS = 64
"""The limit of authenticated connections: a scheduler keeps a handful, and each costs a thread."""

_BACKLOG = 1024
"""The kernel's queue of new connections; the client of one too many tries again a second later."""

_LAST_WORDS_S = 5.0


def _tls_context(files: Tls) -> ssl.SSLContext:
    """Return a TLS context that admits only clients with a certificate of `client_ca`.

    Raises:
        CertificateError: a file cannot be read or is invalid.
    """
    for name, path in (("cert", files.cert), ("key", files.key), ("client_ca", files.client_ca)):
        try:
            path.open("rb").close()  # ssl's own errors name no file
        except OSError as error:
            raise _unreadable(f"extender.tls.{name} {path}", error) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(files.cert, files.key)
    except OSError as error:
        raise _unreadable(f"extender.tls.cert {files.cert} with extender.tls.key {files.key}", error) from error
    try:
        context.load_verify_locations(files.client_ca)
    except OSError as error:
        raise _unreadable(f"extender.tls.client_ca {files.client_ca}", error) from error
    return context


class ExtenderServer:
    """The HTTP server, which listens between `start` and `close`; each start reads the TLS files anew."""

    def __init__(
        self,
        listen: str,
        *,
        routes: Routes,
        tls: Tls | None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008
    ) -> None:
        """Build the extender server.

        Args:
            listen: address and port, `127.0.0.1:8787`; port 0 takes any free one.
            routes: the functions that answer each path.
            tls: the TLS files; None for plain HTTP, on loopback only: whoever reaches it can bind pods.
            limits: the limits for connections that have not shown a certificate.

        Raises:
            ExtenderError: `listen` is not an address and a port, or not on loopback though there is no TLS.
        """
        self._address, family = _address(listen, plain=tls is None)
        self._listen = listen
        self._family = family
        self._routes = routes
        self._tls = tls
        self._limits = limits
        self._gate: Acceptor | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port on which the server listens; 0 while it does not."""
        return 0 if self._server is None else self._server.port

    def alive(self) -> bool:
        """Return whether the server listens."""
        return self._thread is not None and self._thread.is_alive()

    def failed(self) -> bool:
        """Return whether the server should listen and does not."""
        return self._server is not None and not self.alive()

    def start(self) -> None:
        """Begin to listen.

        Raises:
            ExtenderError: the port is taken, or a TLS file is invalid.
        """
        context = None if self._tls is None else _tls_context(self._tls)
        try:
            listener = socket.create_server(self._address, family=self._family, backlog=_BACKLOG)
        except OSError as error:
            raise ExtenderError(
                f"cannot listen on {self._listen}: {os.strerror(error.errno or 0)}: "
                "end what holds the port (`ss -ltnp` shows it) or set extender.listen",
            ) from error
        self._server = _Server(listener, routes=self._routes)
        self._gate = Acceptor(
            listener, context=context, admit=self._server.admit, clock=time.monotonic, limits=self._limits
        )
        self._thread = threading.Thread(target=self._gate.run, name="extender listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end the connections; calls that are being answered get a few seconds to end."""
        server, self._server = self._server, None
        if server is None or self._gate is None or self._thread is None:
            return
        self._gate.close()
        self._thread.join(_LAST_WORDS_S)
        server.end_connections(_LAST_WORDS_S)
        self._thread = None


class _Server(BaseServer):
    """The authenticated connections, with a thread for each."""

    def __init__(self, listener: socket.socket, *, routes: Routes) -> None:
        super().__init__(listener.getsockname(), RequestHandler)
        self.port: int = listener.getsockname()[1]
        self.routes = routes
        self._idle = threading.Condition()
        self._open: set[socket.socket] = set()
        self._ending = False

    def admit(self, connection: socket.socket, address: Any) -> None:  # noqa: ANN401  (socket's own types)
        """Serve a connection in a thread of its own, unless there are too many."""
        with self._idle:
            full = len(self._open) >= _MOST_CONNECTIONS or self._ending
            if not full:
                self._open.add(connection)
        if full:
            _log.warning("extender: more than %d connections, turning %s away", _MOST_CONNECTIONS, address)
            _shut(connection)
            return
        serving = threading.Thread(
            target=self._serve, args=(connection, address), name="extender connection", daemon=True
        )
        try:
            serving.start()
        except RuntimeError:
            _log.exception("extender: connection from %s failed", address)
            self._end(connection)

    def _serve(self, connection: socket.socket, address: Any) -> None:  # noqa: ANN401
        try:
            RequestHandler(connection, address, self)
        except OSError as error:
            _log.info("extender: connection from %s ended: %s", address, error)
        except Exception:  # noqa: BLE001  (the border of this connection)
            _log.exception("extender: connection from %s failed", address)
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._idle:
            self._open.discard(connection)
            self._idle.notify_all()
        _shut(connection)

    def end_connections(self, timeout_s: float) -> None:
        """End reading on all connections, so that idle ones end now and busy ones after their answer."""
        with self._idle:
            self._ending = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    # Not SSLSocket's own shutdown: it drops the encryption, and the answer would go out in clear text.
                    socket.socket.shutdown(connection, socket.SHUT_RD)
            self._idle.wait_for(lambda: not self._open, timeout_s)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
    connection.close()


def _address(listen: str, *, plain: bool) -> tuple[tuple[str, int], socket.AddressFamily]:
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        number = int(port)
    except ValueError as error:
        raise ExtenderError(
            f"extender.listen: {listen!r} is not an address and a port: write e.g. 127.0.0.1:8787"
        ) from error
    if plain and not address.is_loopback:
        raise ExtenderError(
            f"extender.listen: {listen} without TLS lets anybody bind pods: listen on 127.0.0.1 or set extender.tls",
        )
    return (str(address), number), socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004


def _unreadable(what: str, error: OSError) -> CertificateError:
    cause = error.strerror or str(error)
    return CertificateError(f"cannot use {what}: {cause}: write the certificates anew or set extender.insecure: true")
