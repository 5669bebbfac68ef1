"""A small API server over real HTTP for the tests of app limits: collections, strategic patches, versions, managers."""

import json
import threading
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from edgegpu_agent.kube.client import AgentClient
from edgegpu_base.kube import ApiAccess

Json = dict[str, Any]
_KEYED = {"containers", "initContainers"}


@dataclass(frozen=True, slots=True)
class Write:
    """One write that took effect, for the ledger of what was really done."""

    method: str
    path: str
    manager: str
    body: Json


@dataclass(slots=True)
class Fault:
    """What the next write (or, with `method`, call) whose path ends so is answered; `after`: it takes effect first."""

    ending: str
    status: int
    method: str = "PATCH"
    after: bool = False


class _Refusal(Exception):  # noqa: N818  (an answer of the API)
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def strategic(target: Any, patch: Any, key: str = "") -> Any:  # noqa: ANN401  (any JSON)
    """Return `target` with a strategic merge patch applied, as far as lists of containers are concerned."""
    if isinstance(patch, list) and key in _KEYED:
        merged = {one["name"]: one for one in target or ()}
        for one in patch:
            merged[one["name"]] = strategic(merged.get(one["name"]), one)
        return list(merged.values())
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = strategic(result.get(name), value, name)
    return result


@dataclass(slots=True)
class Store:
    """Objects by path."""

    objects: dict[str, Json] = field(default_factory=dict)
    version: int = 10
    lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, path: str, item: Json) -> Json:
        with self.lock:
            self.version += 1
            old = self.objects.get(path)
            metadata = item.setdefault("metadata", {})
            metadata.setdefault("uid", f"uid-{self.version}")
            metadata["resourceVersion"] = str(self.version)
            if old is None or old.get("spec") != item.get("spec"):
                metadata["generation"] = int(metadata.get("generation") or 0) + 1
            self.objects[path] = item
            return deepcopy(item)

    def items(self, folder: str) -> list[Json]:
        with self.lock:
            return [deepcopy(item) for path, item in self.objects.items() if path.rpartition("/")[0] == folder]


class Api:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.store = Store()
        self.writes: list[Write] = []
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def client(self) -> AgentClient:
        """Return a client of it."""
        return AgentClient(ApiAccess(server=self.url), timeout_s=5.0)

    def answer(self, method: str, target: str, body: Json, kind: str) -> tuple[int, Json]:
        url = urlsplit(target)
        manager = (parse_qs(url.query).get("fieldManager") or [""])[0]
        with self.store.lock:
            self.seen.append((method, url.path))
            fault = next((f for f in self.faults if f.method == method and url.path.endswith(f.ending)), None)
            if fault is not None:
                self.faults.remove(fault)
                if not fault.after:
                    return fault.status, {"message": f"fault {fault.status}"}
            try:
                done = self._do(method, url.path, body, kind=kind, manager=manager)
            except _Refusal as refusal:
                return refusal.status, {"message": str(refusal)}
        return (fault.status, {"message": "lost"}) if fault is not None else (201 if method == "POST" else 200, done)

    def _do(self, method: str, path: str, body: Json, *, kind: str, manager: str) -> Json:
        if method == "GET":
            return self._read(path)
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.store.objects:
                raise _Refusal(409, "it exists")
        old = self.store.objects.get(path)
        if old is None and method != "POST":
            raise _Refusal(404, f"{path} is not there")
        asked = (body.get("metadata") or {}).get("resourceVersion")
        if old is not None and asked and asked != old["metadata"]["resourceVersion"]:
            raise _Refusal(409, "the object has been modified")
        new = body if old is None else self._changed(old, body, method=method, kind=kind)
        self.writes.append(Write(method, path, manager, deepcopy(body)))
        return self.store.put(path, new)

    @staticmethod
    def _changed(old: Json, body: Json, *, method: str, kind: str) -> Json:
        if method == "PUT":
            return {**body, "metadata": {**old["metadata"], **body["metadata"]}}
        if kind != "application/strategic-merge-patch+json":
            raise _Refusal(415, f"no patch of type {kind}")
        new: Json = strategic(deepcopy(old), body)
        return new

    def _read(self, path: str) -> Json:
        if path in self.store.objects:
            return deepcopy(self.store.objects[path])
        plural = path.rpartition("/")[2]
        if plural in {"pods", "nodes", "resourcequotas", "horizontalpodautoscalers"}:
            if path == "/api/v1/pods":
                items = [i for p, i in self.store.objects.items() if p.rpartition("/")[0].endswith("/pods")]
            else:
                items = self.store.items(path)
            return {"items": deepcopy(items), "metadata": {"resourceVersion": str(self.store.version)}}
        raise _Refusal(404, f"{path} is not there")


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = (self.headers.get("Content-Type") or "").partition(";")[0]
            status, answer = api.answer(self.command, self.path, json.loads(text) if text else {}, kind)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815  (the base class looks for these names)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def path_of(kind: str, name: str, namespace: str = "default") -> str:
    """Return where the API has a workload."""
    plural = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}[kind]
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}/{name}"
