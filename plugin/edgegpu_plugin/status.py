"""What the process says of itself on a Unix socket: one JSON document, read by the command line and by tests."""

import contextlib
import json
import logging
import socket
import socketserver
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from edgegpu_core.deviceid import Kind
from edgegpu_core.nodeview import is_complete
from edgegpu_core.podview import PodView
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.nodestate import Snapshot
from edgegpu_plugin.reconciler import Refused

_LOG = logging.getLogger(__name__)

SOCKET_NAME = "plugin.sock"
"""In the run folder; mode 0600."""

STATUS_VERSION = 1

_PROBE_S = 1.0


def cards_part(snapshot: Snapshot, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the cards with what is free of each; `names` are the cards' product names by UUID."""
    view = snapshot.view
    free = view.free()
    return [
        {
            "index": slot.label,
            "uuid": slot.uuid,
            "name": names.get(slot.uuid, ""),
            "units": slot.units,
            "units_free": free.memory[position],
            "core_free": free.core[position],
            "healthy": slot.healthy,
        }
        for position, slot in enumerate(view.slots)
    ]


def pods_part(snapshot: Snapshot, refused: tuple[Refused, ...]) -> list[dict[str, Any]]:
    """Return one row for each GPU container of this node, and one for each holder that the API does not know."""
    reasons = {one.pod.uid: one.reason for one in refused}
    rows = [
        row
        for pod in sorted(snapshot.view.pods.values(), key=lambda pod: pod.full_name)
        for row in _pod_rows(pod, snapshot, reasons.get(pod.uid, ""))
    ]
    labels = {slot.uuid: slot.label for slot in snapshot.view.slots}
    for uid in snapshot.view.ledger.pods():
        if uid not in snapshot.view.pods:
            ended = snapshot.pods.get(uid)
            for container, grant in snapshot.view.ledger.grants(uid).items():
                rows.append(
                    {
                        "namespace": "" if ended is None else ended.namespace,
                        "pod": "" if ended is None else ended.name,
                        "uid": uid,
                        "container": container,
                        "memory_units": len(grant.ids.get(Kind.MEMORY, ())),
                        "core": len(grant.ids.get(Kind.CORE, ())),
                        "cards": [{"index": labels.get(card, "?"), "uuid": card} for card in grant.cards()],
                        "phase": "Gone" if ended is None else ended.phase,
                        "state": "held",
                        "reason": "kubelet has not let go of its devices yet",
                    }
                )
    return rows


def _pod_rows(pod: PodView, snapshot: Snapshot, refusal: str) -> list[dict[str, Any]]:
    view = snapshot.view
    labels = {slot.uuid: slot.label for slot in view.slots}
    rows = []
    for container in pod.containers:
        grant = view.ledger.grant(pod.kubelet_uid, container.name)
        complete = is_complete(container, grant)
        promised = view.promises.get(pod.kubelet_uid, {}).get(container.name, ())
        rows.append(
            {
                "namespace": pod.namespace,
                "pod": pod.name,
                "uid": pod.uid,
                "container": container.name,
                "memory_units": container.request.memory_units,
                "core": container.request.core,
                "cards": [{"index": labels.get(card, "?"), "uuid": card} for card in grant.cards() or promised],
                "phase": pod.phase,
                "state": "refused" if refusal else "allocated" if complete else "waiting",
                "reason": refusal,
            }
        )
    return rows


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    document: Callable[[], dict[str, Any]]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer with the document."""
        known = self.path == "/v1/status"
        try:
            body = json.dumps(self.server.document() if known else {"error": "ask for /v1/status"}).encode()
        except Exception:  # noqa: BLE001  (a request's border)
            _LOG.exception("cannot say the status")
            self.send_error(500, "see the log of edgegpu-plugin")
            return
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """Name the peer, which has no address on a Unix socket."""
        return "local"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Log requests where debugging wants them."""
        _LOG.debug(format, *args)


class StatusServer:
    """Serves the document under RUN/plugin.sock until it is closed."""

    def __init__(self, run_folder: Path, document: Callable[[], dict[str, Any]]) -> None:
        self._path = run_folder / SOCKET_NAME
        self._document = document
        self._server: _Server | None = None
        self._stopping = False

    def open(self) -> "_Server":
        """Make the socket; one that a dead process left behind is replaced.

        Raises:
            PluginError: another process answers there, or the folder cannot be written.
        """
        if is_served(self._path):
            raise PluginError(f"cannot make {self._path}: another edgegpu-plugin answers there; stop it first")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            server = _Server(str(self._path), _Handler)
            self._path.chmod(0o600)
        except OSError as error:
            raise PluginError(f"cannot make {self._path}: {error}; set paths.run to a folder of root's") from error
        server.document = self._document
        self._server = server
        return server

    def run(self) -> None:
        """Serve until `stop`, then take the socket away."""
        server = self._server or self.open()
        while not self._stopping:
            server.handle_request()
        self.close()

    def close(self) -> None:
        """Take the socket away, the path first: after that it may be another process's."""
        server, self._server = self._server, None
        if server is not None:
            self._path.unlink(missing_ok=True)
            server.server_close()

    def stop(self) -> None:
        """Let `run` end; it waits without a time limit, and a listener that is shut down wakes it."""
        self._stopping = True
        server = self._server
        if server is not None:
            with contextlib.suppress(OSError):  # closed already
                server.socket.shutdown(socket.SHUT_RDWR)


def is_served(path: Path) -> bool:
    """Say whether a living process answers on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError):
            return True  # it listens, but its queue is full
        except OSError:
            return False
        return True
