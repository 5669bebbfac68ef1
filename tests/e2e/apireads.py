"""Reads of the API server without a program for each: `kubectl proxy` of the node, over its Unix socket.

A test looks several times a second, and each `k3s kubectl` costs a quarter of a second of a core.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from lab.labrun import LabError, Process, wait_until

from edgegpu_base.http_unix import NoHttpError, get

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.machine import Machine

_SOCKET = "/run/edgegpu-test-api.sock"
_WAIT_S = 60.0
KINDS = {"pods": "pods", "events": "events", "node": "nodes"}
"""What is read so, by the word that kubectl has for it."""


class ApiReads:
    """The proxy of a node, from its start to `stop`; k3s may come and go meanwhile."""

    def __init__(self, server: Machine, log: Path) -> None:
        """Start it in the server's node; it logs to a file."""
        self._socket = server.path(_SOCKET)
        self._socket.unlink(missing_ok=True)
        self._proxy: Process = server.popen("k3s", "kubectl", "proxy", f"--unix-socket={_SOCKET}", log=log)
        wait_until(self._socket.is_socket, what="the proxy of the API server listens")

    def get(self, kind: str, name: str, *, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        """Return an object or a list, as `kubectl get -o json` does.

        Raises:
            LabError: the API server is away, or refuses it.
        """
        inside = f"namespaces/{quote(namespace)}/" if namespace else ""
        path = f"/api/v1/{inside}{KINDS[kind]}{f'/{quote(name)}' if name else ''}?{urlencode(query)}"
        try:
            status, body = get(self._socket, path, timeout_s=_WAIT_S)
        except (OSError, NoHttpError) as error:
            raise LabError(f"cannot read {path}: {error}") from error
        if status != 200:
            raise LabError(f"cannot read {path}: status {status}: {body[-400:].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(body)
        return answer

    def stop(self) -> None:
        """End the proxy."""
        self._proxy.terminate()
        self._proxy.wait()
