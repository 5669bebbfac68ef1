"""The API over HTTP on 127.0.0.1: bearer tokens, a log of all requests, stop and start on the same port."""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edgegpu_sim.api.errors import ApiError, bad_request
from edgegpu_sim.api.objects import Json
from edgegpu_sim.api.registry import Registry
from edgegpu_sim.api.requests import Requests, Route, parse, selector_of
from edgegpu_sim.api.watching import Watch, events

_PATCHES = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",  # JSON is YAML
}
_HEALTH = ("/readyz", "/livez", "/healthz")


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One request in the log; a watch is logged when it begins."""

    at_s: float
    user: str
    verb: str
    resource: str
    sub: str
    namespace: str
    name: str
    code: int


@dataclass(slots=True)
class ServerSettings:
    """Settings that tests change while the server runs."""

    tokens: Mapping[str, str]
    """Bearer token to user name; other tokens are answered 401."""
    watch_delay_s: dict[str, float] = field(default_factory=dict)
    """The delay of a resource's watches, by resource."""
    allow: Callable[[str, Route], bool] = lambda _user, _route: True
    """Returns whether a user may make a request; otherwise the answer is 403."""
    may: Callable[[str, Json], bool] = lambda _user, _attributes: True
    """Returns the answer to a user's SelfSubjectAccessReview, by its `resourceAttributes`."""
    bookmark_s: float = 5.0
    minor: int = 33
    """The minor version of Kubernetes that the server reports."""


class ApiServer:
    """The HTTP server of a registry; `stop` drops every connection, `start` serves on the same port again."""

    def __init__(self, registry: Registry, settings: ServerSettings) -> None:
        self.registry = registry
        self.settings = settings
        self.requests = Requests(registry)
        self.calls: list[LoggedCall] = []
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The URL of the API, without a path."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serve; the first start takes a free port, later ones use the same."""
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        self.registry.is_up = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and drop every connection; the stored objects stay."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        self.registry.is_up = False
        server.stopping = True
        server.shutdown()
        server.drop_all()
        self.registry.store.wake()
        self._thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], api: ApiServer) -> None:
        self.api = api
        self.stopping = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def note(self, connection: socket.socket, *, is_open: bool) -> None:
        with self._lock:
            (self._open.add if is_open else self._open.discard)(connection)

    def drop_all(self) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # gone already

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  (socketserver's own)
        """Log nothing: clients that vanish during a request are normal here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.note(self.connection, is_open=True)

    def finish(self) -> None:
        self.server.note(self.connection, is_open=False)
        try:
            super().finish()
        except OSError:
            return  # the client was gone before the last flush

    def log_message(self, *_: object) -> None:
        """Log nothing: the log is `ApiServer.calls`."""

    def do_GET(self) -> None:
        """Serve any request."""
        if self.server.stopping:
            self.close_connection = True
            return
        if self.path.startswith(_HEALTH):
            self._send(200, b"ok", "text/plain")
            return
        user, route = "", None
        try:
            body = self._body()
            user = self._user()
            route = parse(self.command, self.path)
            if route is not None and self.command == "PATCH":
                route = replace(route, form=_PATCHES[self._content_type()])
            code, answer = self._answer(user, route, body)
        except ApiError as error:
            code, answer = error.code, error.status()
        if answer is not None:
            if route is not None:
                self._log(user, route, code)
            self._send_json(code, answer)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  (the base class looks for these names)

    def _answer(self, user: str, route: Route | None, body: Json) -> tuple[int, Json | None]:
        """Return status code and object; no object for a watch, which is already answered."""
        if self.path == "/version":
            minor = self.server.api.settings.minor
            return 200, {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0+sim"}
        if route is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self._check_rights(user, route)
        if route.verb == "watch":
            self._log(user, route, 200)
            self._watch(route)
            return 200, None
        if route.resource == "selfsubjectaccessreviews":
            allowed = self.server.api.settings.may(user, body["spec"]["resourceAttributes"])
            return 201, {**body, "status": {"allowed": allowed}}
        return self.server.api.requests.answer(route, body)

    def _content_type(self) -> str:
        return (self.headers.get("Content-Type") or "").partition(";")[0]

    def _body(self) -> Json:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        kind = self._content_type()
        if self.command == "PATCH" and kind not in _PATCHES:
            raise ApiError(415, "UnsupportedMediaType", f"patches of type {kind!r} are not supported here")
        try:
            value = json.loads(text) if text else {}
        except ValueError as error:
            raise bad_request(f"cannot read the body: {error}") from error
        if not isinstance(value, dict):
            raise bad_request("the body is no object")
        return value

    def _user(self) -> str:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        user = self.server.api.settings.tokens.get(token)
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def _check_rights(self, user: str, route: Route) -> None:
        if not self.server.api.settings.allow(user, route):
            what = f'cannot {route.verb} resource "{route.resource}" in API group ""'
            raise ApiError(403, "Forbidden", f'{route.resource} is forbidden: User "{user}" {what}')

    def _log(self, user: str, route: Route, code: int) -> None:
        call = LoggedCall(time.time(), user, route.verb, route.resource, route.sub, route.namespace, route.name, code)
        self.server.api.calls.append(call)

    def _watch(self, route: Route) -> None:
        settings, query = self.server.api.settings, route.query
        watch = Watch(
            resource=route.resource,
            namespace=route.namespace,
            selector=selector_of(route),
            version=query.get("resourceVersion", ""),
            bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
            timeout_s=float(query.get("timeoutSeconds") or 1800),
            delay_s=settings.watch_delay_s.get(route.resource, 0.0),
            bookmark_s=settings.bookmark_s,
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in events(self.server.api.registry, watch, ended=self._client_gone):
            line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _client_gone(self) -> bool:
        if self.server.stopping:
            return True
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _send_json(self, code: int, answer: Json) -> None:
        self._send(code, json.dumps(answer, separators=(",", ":")).encode(), "application/json")

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def write_kubeconfig(path: Path, *, url: str, token: str, user: str) -> None:
    """Write a kubeconfig with a bearer token, readable by its owner alone."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sim", "cluster": {"server": url}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": user}}],
        "current-context": "sim",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
