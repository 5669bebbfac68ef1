"""The API server by plain HTTP over the Unix socket of `kubectl proxy`: no client of the product has a part in it."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NAMESPACE = "churn"
_GONE = 404
_THERE = 409


class AwayError(Exception):
    """The API server does not answer, or refuses; the text has its words."""


class Api:
    """Reads and writes objects; each call is a connection of its own, so threads may share it."""

    def __init__(self, proxy: Path, timeout_s: float = 5.0) -> None:
        """Remember the socket of the proxy."""
        self._proxy, self._timeout_s = proxy, timeout_s

    def get(self, path: str) -> Json:
        """Return an object or a list. Raises AwayError."""
        return self._ask("GET", path)

    def create(self, path: str, value: Json) -> bool:
        """Create an object; returns whether it is new. Raises AwayError."""
        return bool(self._ask("POST", path, value, passed=_THERE))

    def patch(self, path: str, value: Json) -> bool:
        """Merge into an object; returns whether it is there. Raises AwayError."""
        return bool(self._ask("PATCH", path, value, kind="application/merge-patch+json", passed=_GONE))

    def delete(self, path: str) -> bool:
        """Delete an object, what it controls after it; returns whether it was there. Raises AwayError."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        return bool(self._ask("DELETE", path, options, passed=_GONE))

    def _ask(
        self, method: str, path: str, value: Json | None = None, *, kind: str = "application/json", passed: int = 0
    ) -> Json:
        link = http.client.HTTPConnection("localhost", timeout=self._timeout_s)
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.settimeout(self._timeout_s)
        try:
            link.sock.connect(str(self._proxy))
            link.request(method, path, None if value is None else json.dumps(value), {"Content-Type": kind})
            answer = link.getresponse()
            status, body = answer.status, answer.read()
            result: Json = {} if status == passed else json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AwayError(f"cannot {method} {path}: {error}") from error
        finally:
            link.close()
        if status != passed and status >= 300:
            raise AwayError(f"cannot {method} {path}: status {status}: {str(result)[:300]}")
        return result
