"""A small API server for tests: pods, nodes, bindings, patches and watches over real HTTP, with faults on demand."""

import json
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from edgegpu_base.kube import ApiAccess

Json = dict[str, Any]


@dataclass(slots=True)
class Fault:
    """What happens to the next call whose `METHOD path` matches: an answer, after or instead of the real one."""

    pattern: str
    status: int = 500
    takes_effect: bool = False
    drop: bool = False  # close the connection instead of answering
    lasts: bool = False  # to every such call, until it is taken out of the list


@dataclass(slots=True)
class Store:
    """The objects by collection and key, and all that ever happened to them."""

    objects: dict[str, dict[str, Json]] = field(
        default_factory=lambda: {"pods": {}, "nodes": {}, "events": {}, "leases": {}}
    )
    log: list[tuple[int, str, str, Json]] = field(default_factory=list)
    version: int = 100
    oldest: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, collection: str, key: str, item: Json) -> None:
        with self.changed:
            kind = "MODIFIED" if key in self.objects[collection] else "ADDED"
            self._log(collection, item, kind)
            self.objects[collection][key] = item

    def remove(self, collection: str, key: str) -> None:
        with self.changed:
            self._log(collection, self.objects[collection].pop(key), "DELETED")

    def bookmark(self, collection: str) -> None:
        with self.changed:
            self._log(collection, {"kind": "Bookmark", "metadata": {}}, "BOOKMARK")

    def _log(self, collection: str, item: Json, kind: str) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, collection, kind, json.loads(json.dumps(item))))
        self.changed.notify_all()


class KubeStub:
    """The server; use as a context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.faults: list[Fault] = []
        self.budgets: list[Json] = []
        self.calls: list[tuple[str, str, Json]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._epoch = 0
        self._stalled = False
        self._cached: dict[str, dict[str, Json]] | None = None
        self._server = _Server(self, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        with self.store.changed:
            self.store.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    @property
    def access(self) -> ApiAccess:
        return ApiAccess(server=f"http://127.0.0.1:{self._server.server_address[1]}")

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self.store.objects["pods"][f"{namespace}/{name}"]

    def add_pod(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self.store.write("pods", f"{metadata['namespace']}/{metadata['name']}", pod)

    def add_node(self, node: Json) -> None:
        self.store.write("nodes", node["metadata"]["name"], node)

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, f"{method} {path}")) for method, path, _ in list(self.calls))

    def wait_called(self, pattern: str, count: int, timeout_s: float) -> bool:
        """Wait until so many calls came whose `METHOD path` matches."""
        with self.store.changed:
            return self.store.changed.wait_for(lambda: self.count(pattern) >= count, timeout_s)

    def lead(self, holder: str, transitions: int = 0) -> None:
        """Say who leads the schedulers."""
        spec = {"holderIdentity": holder, "leaseTransitions": transitions, "acquireTime": "2026-01-01T00:00:00.000000Z"}
        lease = {"metadata": {"uid": "uid-lease"}, "spec": spec}
        self.store.write("leases", "kube-system/kube-scheduler", lease)

    def stall_watches(self) -> None:
        """Let all watches say nothing from now on, though they stay open; new ones too.

        As if the API server's watch cache had fallen behind: a list with resourceVersion=0 is as old as the watches.
        """
        with self.store.changed:
            self._stalled = True
            self._cached = json.loads(json.dumps(self.store.objects))

    def forget_history(self) -> None:
        """Make every watch from before end with 410 Gone."""
        with self.store.changed:
            self.store.version += 1
            self.store.oldest = self.store.version
            self.store.changed.notify_all()

    def cut_watches(self) -> None:
        """End all watches without a word."""
        with self.store.changed:
            self._epoch += 1
            self.store.changed.notify_all()

    def take_fault(self, call: str) -> Fault | None:
        with self._lock:
            found = next((fault for fault in self.faults if re.search(fault.pattern, call)), None)
            if found is not None and not found.lasts:
                self.faults.remove(found)
            return found

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> tuple[int, Json]:
        if path == "/apis/policy/v1/poddisruptionbudgets":
            return 200, {"metadata": {}, "items": self.budgets}
        path = path.removeprefix("/api/v1").removeprefix("/apis/coordination.k8s.io/v1")
        match method, path.strip("/").split("/"):
            case "GET", [("pods" | "nodes") as collection]:
                return self._list(collection, query)
            case "GET", ["nodes", _, "proxy", _]:
                return 200, {"items": list(self.store.objects["pods"].values())}
            case _, ["nodes", name]:
                return self._one(method, "nodes", name, body)
            case _, ["namespaces", namespace, *rest]:
                return self._in_namespace(method, namespace, rest, body)
        return 404, _status(404, f"no path {path}")

    def _in_namespace(self, method: str, namespace: str, rest: list[str], body: Json) -> tuple[int, Json]:
        match method, rest:
            case "POST", ["events"]:
                self.store.write("events", f"{namespace}/{body['metadata']['name']}", body)
                return 201, body
            case "POST", ["pods", name, "binding"]:
                return self._bind(f"{namespace}/{name}", body)
            case "POST", ["pods", name, "eviction"]:
                return self._one("DELETE", "pods", f"{namespace}/{name}", body["deleteOptions"])
            case _, [collection, name] | [collection, name, "status"]:
                return self._one(method, collection, f"{namespace}/{name}", body)
        return 404, _status(404, f"no path {rest}")

    def _list(self, collection: str, query: dict[str, str]) -> tuple[int, Json]:
        with self.store.changed:
            from_cache = query.get("resourceVersion") == "0"
            objects = self._cached if from_cache and self._cached is not None else self.store.objects
            items = [json.loads(json.dumps(item)) for item in objects[collection].values()]
            version = self.store.version
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        items = [item for item in items if not node or item["spec"].get("nodeName") == node]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(items)
        rest = str(start + limit) if start + limit < len(items) else ""
        return 200, {
            "metadata": {"resourceVersion": str(version), "continue": rest},
            "items": items[start : start + limit],
        }

    def _one(self, method: str, collection: str, key: str, body: Json) -> tuple[int, Json]:
        with self._lock:
            item = self.store.objects[collection].get(key)
            if item is None:
                return 404, _status(404, f'{collection} "{key}" not found')
            wanted = (body.get("preconditions") or body.get("metadata") or {}).get("uid")
            if wanted is not None and wanted != item["metadata"]["uid"]:
                if method == "PATCH":  # as a real one (1.33) puts it
                    return 422, _status(422, f'"{key}" is invalid: metadata.uid: field is immutable')
                return 409, _status(409, "the UID in the precondition does not match")
            if method == "DELETE":
                self.store.remove(collection, key)
            elif method == "PATCH":
                item = merge(item, body)
                self.store.write(collection, key, item)
            return 200, item

    def _bind(self, key: str, body: Json) -> tuple[int, Json]:
        with self._lock:
            pod = self.store.objects["pods"].get(key)
            if pod is None:
                return 404, _status(404, f'pods "{key}" not found')
            metadata = body["metadata"]
            if metadata.get("uid") not in {None, pod["metadata"]["uid"]}:
                return 409, _status(409, "Precondition failed: UID")
            if pod["spec"].get("nodeName"):
                return 409, _status(409, f"pod {key} is already assigned to node {pod['spec']['nodeName']}")
            change = {
                "metadata": {"annotations": metadata.get("annotations") or {}},
                "spec": {"nodeName": body["target"]["name"]},
            }
            pod = merge(pod, change)
            self.store.write("pods", key, pod)
        return 201, {"kind": "Status", "status": "Success"}

    def events(self, collection: str, query: dict[str, str], send: Callable[[Json], None]) -> None:
        """Send what happens to a collection until the watch ends."""
        seen, epoch = int(query["resourceVersion"]), self._epoch
        while not self._stopped.is_set() and epoch == self._epoch:
            with self.store.changed:
                if seen < self.store.oldest:
                    send({"type": "ERROR", "object": _status(410, "too old resource version")})
                    return
                news = [entry for entry in self.store.log if entry[0] > seen and entry[1] == collection]
                if not news or self._stalled:
                    self.store.changed.wait(5)
                    continue
            for version, _, kind, item in news:
                send({"type": kind, "object": item})
                seen = version


def merge(item: Json, change: Json) -> Json:
    merged = dict(item)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: KubeStub, tls: ssl.SSLContext | None) -> None:
        self.stub = stub
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients hang up in tests all the time."""

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "code": code, "message": message, "metadata": {}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        stub, parts = self.server.stub, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        with stub.store.changed:
            stub.calls.append((self.command, self.path, body))
            stub.store.changed.notify_all()
        fault = stub.take_fault(f"{self.command} {self.path}")
        if fault is not None and fault.takes_effect:
            stub.answer(self.command, parts.path, query, body)
        if fault is not None and fault.drop:
            self.close_connection = True
        elif fault is not None:
            self._answer(fault.status, _status(fault.status, "fault on demand"))
        elif query.get("watch"):
            self._watch(parts.path, query)
        else:
            self._answer(*stub.answer(self.command, parts.path, query, body))

    def _answer(self, status: int, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, path: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(event: Json) -> None:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

        try:
            self.server.stub.events(path.rpartition("/")[2], query, send)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815  (http.server's names)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass
