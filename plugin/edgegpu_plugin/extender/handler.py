"""One connection of the extender's server: reads requests, finds what answers them, writes the answers."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Protocol

_log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""Of one request: a thousand whole nodes, with a scheduler that sends those, are about 20 MiB."""

_KEPT_S = 300.0
"""Longer than Go's clients keep an idle connection (90 s), so that it is never we who close it under their hands."""


class BadRequest(Exception):  # noqa: N818  (named as HTTP names it)
    """The body is not what the path takes; the text says why."""


class NotNow(Exception):  # noqa: N818  (named as HTTP names it)
    """It cannot be answered at present; the text says why."""


class Routes(Protocol):
    """What answers: bodies in, bodies out."""

    @property
    def posts(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """What answers POST, by path; raises BadRequest and NotNow."""

    def health(self) -> tuple[bool, str]:
        """Return whether all is well, and the words for it."""


class RoutedServer(BaseServer):
    """A server that knows what answers."""

    routes: Routes


class RequestHandler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.1; an answer leaves in one packet where it can."""

    server: RoutedServer
    protocol_version = "HTTP/1.1"
    server_version = "edgegpu"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = _KEPT_S
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer a question about our health."""
        if self.path != "/healthz":
            self._answer(HTTPStatus.NOT_FOUND, f"no path {self.path}\n")
            return
        well, words = self.server.routes.health()
        self._answer(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, words + "\n")

    def do_POST(self) -> None:
        """Answer a verb. The scheduler takes everything but 200 as an error, so failing here is failing safe."""
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
        except NotNow as error:
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
