"""The agent's local API on a Unix socket, like the plugin's: JSON over HTTP, for the command line."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from edgegpu_agent.ports import ActionStopped
from edgegpu_base.http_unix import LocalServer, Response

SOCKET_NAME = "agent.sock"
"""The socket in the run folder, with mode 0600."""

_LIMIT = 50


class LocalApi(LocalServer):
    """The server of the agent's status and history on one socket; `run` it on a thread of its own."""

    def __init__(self, path: Path, *, status: Callable[[], BaseModel], history: Callable[[int], BaseModel]) -> None:
        """Build the local api.

        Args:
            path: the path of the socket; one that a dead process has left is replaced.
            status: returns the answer to /v1/status.
            history: returns the answer to /v1/journal with so many lines.
        """
        super().__init__(path, self._said, owner="edgegpu-agent")
        self._status, self._history = status, history

    def _said(self, target: str) -> Response:
        asked = urlsplit(target)
        try:
            match asked.path:
                case "/v1/status":
                    found = self._status()
                case "/v1/journal":
                    limit = parse_qs(asked.query).get("limit", [""])[0]
                    found = self._history(int(limit) if limit.isdigit() else _LIMIT)
                case _:
                    return Response(404, b'{"error": "ask for /v1/status or /v1/journal"}')
        except ActionStopped:
            return Response(503, b'{"error": "the agent ends"}')
        return Response(200, found.model_dump_json().encode())
