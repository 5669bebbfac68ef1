"""Calls to the API server: pooled connections, a deadline on each call, JSON in and out, typed errors."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from edgegpu_base.kube.connection import ApiConnection
from edgegpu_base.kube.errors import KubeError, Unavailable, of_status
from edgegpu_base.kube.kubeconfig import ApiAccess

Json = dict[str, Any]
Params = Mapping[str, str]

PAGE = 200
"""Objects per page of a list: a page of pods is 2 to 3 MiB of text, and several times that once parsed."""

_CONNECT_S = 5.0
_CHUNK = 65_536
_FIRST_ERROR = 400
_MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and the resource version of the whole list."""

    items: list[Json]
    resource_version: str


class WatchStream:
    """The events of one watch, as the API server sends them; `close` from any thread ends the iteration."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str) -> None:
        self._response = response
        self._what = what
        self._closed = False

    def __iter__(self) -> Iterator[Json]:
        """Yield events until the server ends the watch or `close` does.

        Raises:
            Unavailable: the connection broke.
        """
        rest = b""
        try:
            for chunk in self._response.stream(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
                for line in lines:
                    if line:
                        yield json.loads(line)
        except (HTTPError, OSError, ValueError) as error:
            if not self._closed:
                raise Unavailable(f"cannot go on with {self._what}: {_cause(error)}") from error

    def close(self) -> None:
        """End the watch; a thread that waits for its next event returns at once."""
        self._closed = True
        # A watch that has ended already raises one of several errors here.
        with suppress(HTTPError, OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closed = True
        self._response.close()


class KubeClient:
    """A client of one API server; its methods may be called from any thread."""

    def __init__(self, access: ApiAccess, *, timeout_s: float = 10.0) -> None:
        """Prepare the connections without sending anything.

        Args:
            access: the server and the credentials, from `kubeconfig.load`.
            timeout_s: how long a call may take unless it sets its own time-out.

        Raises:
            KubeError: the certificates cannot be used.
        """
        self._timeout_s = timeout_s
        self._connection = ApiConnection(access)

    def get(self, path: str, *, params: Params | None = None, timeout_s: float | None = None) -> Json:
        """Read one object. Raises KubeError."""
        return self._call("GET", path, params=params, timeout_s=timeout_s)

    def pages(self, path: str, *, params: Params | None = None, limit: int = PAGE) -> Iterator[Page]:
        """Read a list page by page, so that only one page is in memory at a time.

        Raises:
            ExpiredError: the token of the next page has expired; begin again.
            KubeError: as for every call.
        """
        token = ""
        while True:
            asked = {**(params or {}), "limit": str(limit), **({"continue": token} if token else {})}
            answer = self._call("GET", path, params=asked)
            metadata = answer.get("metadata") or {}
            yield Page(answer.pop("items", None) or [], str(metadata.get("resourceVersion", "")))
            token = str(metadata.get("continue") or "")
            if not token:
                return

    def create(self, path: str, body: Json, *, params: Params | None = None, timeout_s: float | None = None) -> Json:
        """Create an object or a subresource. Raises KubeError."""
        return self._call("POST", path, body=body, params=params, timeout_s=timeout_s)

    def patch(self, path: str, body: Json) -> Json:
        """Change an object by a merge patch; `metadata.uid` in it is a precondition. Raises KubeError."""
        return self._call("PATCH", path, body=body, content_type="application/merge-patch+json")

    def delete(self, path: str, body: Json | None = None) -> Json:
        """Delete an object; the body is a DeleteOptions. Raises KubeError."""
        return self._call("DELETE", path, body=body)

    def watch(self, path: str, *, params: Params, silence_s: float) -> WatchStream:
        """Open a watch and return its events; `silence_s` is how long it may send nothing.

        Raises:
            ExpiredError: the resource version is too old.
            KubeError: as for every call.
        """
        asked = {**params, "watch": "true"}
        response = self._open("GET", path, params=asked, timeout_s=silence_s)
        what = f"watch {path}"
        if response.status >= _FIRST_ERROR:
            raise _refused(what, response.status, response.read())
        return WatchStream(response, what)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._connection.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> Json:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        ends = time.monotonic() + limit_s
        response = self._open(method, path, params=params, body=body, content_type=content_type, timeout_s=limit_s)
        text = _read(response, ends, f"{method} {path}")
        if response.status >= _FIRST_ERROR:
            raise _refused(f"{method} {path}", response.status, text)
        return _json(text, f"{method} {path}")

    def _open(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        params: Params | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return its answer with the body unread."""
        link = self._connection.connections()
        url = f"{link.prefix}{path}" + (f"?{urlencode(params)}" if params else "")
        headers = {"Accept": "application/json", **link.headers}
        if body is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        # A server may close a kept connection just as we use it. Then a GET is sent once more.
        for last in (False, True) if method == "GET" else (True,):
            try:
                return link.pool.urlopen(
                    method,
                    url,
                    body=data,
                    headers=headers,
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    timeout=urllib3.Timeout(connect=min(_CONNECT_S, timeout_s), read=timeout_s),
                )
            except ProtocolError as error:
                if last:
                    raise Unavailable(f"cannot {method} {path}: {_cause(error)}") from error
            except HTTPError as error:
                raise Unavailable(f"cannot {method} {path}: {_cause(error)}") from error
        raise AssertionError("the last attempt returns or raises")


def _read(response: urllib3.BaseHTTPResponse, ends: float, what: str) -> bytes:
    """Read the whole body before the deadline; the read time-out limits each single wait only."""
    parts: list[bytes] = []
    try:
        for part in response.stream(_CHUNK):
            parts.append(part)
            if time.monotonic() > ends:
                response.close()
                raise Unavailable(f"cannot {what}: the answer did not end in time")
    except (HTTPError, OSError) as error:
        raise Unavailable(f"cannot {what}: {_cause(error)}") from error
    response.release_conn()
    return b"".join(parts)


def _json(text: bytes, what: str) -> Json:
    try:
        value = json.loads(text) if text else {}
    except ValueError as error:
        raise Unavailable(f"cannot {what}: the answer is not JSON: {error}") from error
    return value if isinstance(value, dict) else {"value": value}


def _refused(what: str, status: int, text: bytes) -> KubeError:
    """Return the error for a refusal, with the message of the API server's Status object."""
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text.decode("utf-8", "replace")
    return of_status(status, f"cannot {what}: {status}: {message.strip()[:_MESSAGE_LENGTH]}")


def _cause(error: Exception) -> str:
    """Return a short text of the error that urllib3 has wrapped."""
    return " ".join(str(error).split())[:_MESSAGE_LENGTH] or type(error).__name__
