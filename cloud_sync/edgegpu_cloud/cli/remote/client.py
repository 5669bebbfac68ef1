"""Requests to the API of a controller: its address, the token, the authority of its certificate; problems as errors."""

import json
import os
import re
import ssl
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import urllib3
from pydantic import TypeAdapter, ValidationError

from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_sync.faults import first_fault

T = TypeVar("T")

TOKEN, TOKEN_FILE, CA_FILE = "EDGEGPU_CLOUD_TOKEN", "EDGEGPU_CLOUD_TOKEN_FILE", "EDGEGPU_CLOUD_CA"
_reader: Callable[[object], TypeAdapter[Any]] = cache(TypeAdapter)
_BASE = "/api/v1"
_TIMEOUT_S = 30.0
_PART = 200
_PAUSES_S, _AGAIN_WITHIN_S = (0.5, 1.0, 2.0, 4.0), 60.0
"""The pauses before a request is sent again, in seconds; after so long it is not sent again."""
_HELD_PAUSES_S = (5.0,) * 14
"""The pauses after those while the first try is being done: the controller takes a dead one over after 60 s."""
_NO_ANSWER, _CONFLICT = frozenset({502, 503, 504}), 409
_MAY_BE_MADE = "the change may have been made, and its answer was lost: look at it, then ask again where it was not"
_KINDS: Mapping[int, type[CloudError]] = {403: ForbiddenError, 404: NotFoundError, 409: ConflictError}


class ApiClient:
    """Sends requests as one person. Every method raises CloudError where the controller refuses or does not answer."""

    def __init__(self, url: str, token: str, *, ca: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the console's URL and an API token.

        Args:
            url: `https://HOST:PORT`.
            token: its text.
            ca: a file with the authority of the console's certificate; empty: those of the system.
            sleep: waits before a request is sent again, seconds.

        Raises:
            CloudError: the URL or the file is none.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise CloudError(f"cannot use --server {url!r}: it is no URL of a console", remedy="give https://HOST:8444")
        self._sleep = sleep
        self._url = f"https://{parts.netloc}"
        self._headers = {"Authorization": f"Bearer {token}"}
        try:
            self._pool = urllib3.connection_from_url(self._url, ca_certs=ca or None, cert_reqs="CERT_REQUIRED")
            if ca and not Path(ca).is_file():
                raise CloudError(f"cannot read {ca}: there is no such file", remedy=f"put {CA_FILE} right")
        except (OSError, ValueError) as error:
            raise CloudError(f"cannot use {ca}: {error}", remedy=f"put {CA_FILE} right") from error

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401  (whatever JSON has)
        """Return what there is at a path below the API."""
        return self._sent("GET", path, query=query)

    def send(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  (whatever JSON has)
        """Change something; return the answer. Where the answer is lost, the same is sent again, and done once."""
        return self._sent(method, path, body=body)

    def items(self, path: str, *, most: int | None = None, **query: object) -> Iterator[Any]:
        """Yield the items of a list, part by part: all, or so many."""
        left = most
        found = self.get(path, **query, limit=_PART if left is None else min(_PART, left))
        while True:
            for one in found["items"]:
                if left is not None and left <= 0:
                    return
                left = None if left is None else left - 1
                yield one
            if not found["next"] or left == 0:
                return
            found = self._sent("GET", found["next"].removeprefix(_BASE))

    def _sent(self, method: str, path: str, *, query: Mapping[str, object] | None = None, body: object = None) -> Any:  # noqa: ANN401
        headers = dict(self._headers)
        if method != "GET":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        if body is not None:
            headers["Content-Type"] = "application/json"
        fields = [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, given in (query or {}).items()
            for value in (given if isinstance(given, list | tuple) else [given])
        ]
        url = f"{_BASE}{path}"
        if fields:
            url += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in fields)
        text = None if body is None else json.dumps(body)
        return self._read(self._answer(method, url, headers, text), changes=method != "GET")

    def _answer(self, method: str, url: str, headers: Mapping[str, str], body: str | None) -> urllib3.BaseHTTPResponse:
        """Send a request, and the same again where its answer is lost: under its key a change is made once."""
        until_s, pauses, held = time.monotonic() + _AGAIN_WITHIN_S, iter(_PAUSES_S), iter(_HELD_PAUSES_S)
        lost = False
        while True:
            pause_s = next(pauses, None) if time.monotonic() < until_s else None
            try:
                answer = self._pool.request(method, url, headers=headers, body=body, timeout=_TIMEOUT_S, retries=False)
            except urllib3.exceptions.HTTPError as error:
                lost = lost or _is_lost(error)
                if pause_s is None or not lost:
                    raise self._unreached(error, changed=lost and method != "GET") from error
            else:
                if pause_s is None and _is_in_flight(answer):
                    pause_s = next(held, None)
                if pause_s is None or not (answer.status in _NO_ANSWER or _is_in_flight(answer)):
                    return answer
                lost = True
            self._sleep(pause_s)

    def _unreached(self, error: Exception, *, changed: bool) -> CloudError:
        cause = str(getattr(error, "reason", None) or error).partition("\n")[0]
        remedy = f"is {self._url} the console's URL, does it run, and is {CA_FILE} its authority (ca/servers.crt)?"
        return CloudError(f"cannot reach {self._url}: {cause}", remedy=_MAY_BE_MADE if changed else remedy)

    def _read(self, answer: urllib3.BaseHTTPResponse, *, changes: bool) -> Any:  # noqa: ANN401  (whatever JSON has)
        if 300 <= answer.status < 400:  # noqa: PLR2004  (HTTP's own)
            text = f"cannot use {self._url}: it sends to {answer.headers.get('location', 'another place')}"
            raise CloudError(text, remedy="give the URL of the console itself: https://HOST:8444")
        try:
            found = json.loads(answer.data) if answer.data else None
        except ValueError as error:
            if answer.status in _NO_ANSWER:
                found = None
            else:
                text = f"cannot understand {self._url}: its answer, status {answer.status}, is no JSON"
                raise CloudError(text, remedy="give the URL of the console: https://HOST:8444") from error
        if answer.status < 400:  # noqa: PLR2004  (HTTP's own)
            return found
        if answer.status == 401:  # noqa: PLR2004  (HTTP's own)
            remedy = f"put an API token into {TOKEN}, or into the file that {TOKEN_FILE} names"
            raise CloudError(f"cannot use {self._url}: it does not know this token", remedy=remedy)
        if not isinstance(found, dict) or "detail" not in found:
            text = f"cannot use {self._url}: it answers with status {answer.status}"
            remedy = "does the console run behind its proxy?"
            raise CloudError(text, remedy=_MAY_BE_MADE if changes and answer.status in _NO_ANSWER else remedy)
        kind, remedy = _KINDS.get(answer.status, CloudError), str(found.get("remedy", ""))
        lost = changes and (answer.status in _NO_ANSWER or _is_in_flight(answer))
        raise kind(str(found["detail"]), remedy=_MAY_BE_MADE if lost else remedy)


def _is_lost(error: Exception) -> bool:
    """Whether a request may have arrived though its answer has not; a wrong name, port or certificate is no loss."""
    cut = isinstance(error, urllib3.exceptions.SSLError) and isinstance(error.args[0], ssl.SSLEOFError)
    return cut or isinstance(error, urllib3.exceptions.ProtocolError | urllib3.exceptions.ReadTimeoutError)


def _is_in_flight(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether the first try is being done, as far as the controller knows."""
    return answer.status == _CONFLICT and b'"IN_FLIGHT"' in answer.data


def read_as(kind: type[T], value: object) -> T:
    """Return what a value of JSON is as one of our types, whose reader is built at the first one.

    Raises:
        CloudError: it is none: the controller has another version.
    """
    try:
        found: T = _reader(kind).validate_json(json.dumps(value))
    except ValidationError as error:
        text = f"cannot understand the controller's answer: {first_fault(error)}"
        raise CloudError(text, remedy="use the version of edgegpu-cloud that the controller has") from error
    return found


def name_in_path(name: str, *, what: str = "", remedy: str = "`edgegpu-cloud boxes` lists the boxes") -> str:
    """Return a name as a part of a path; `what` it is the name of, and how it is found, are for the error.

    Raises:
        NotFoundError: nothing can be called so.
    """
    if not name or "/" in name or name in {".", ".."}:
        raise NotFoundError(f"cannot find {what} {name!r}".replace("  ", " "), remedy=remedy)
    return quote(name, safe="")


def read_token() -> str:
    """Return the API token of who runs the command, from the environment, or from a file of theirs alone.

    Raises:
        CloudError: there is none, or others may read the file.
    """
    if text := os.environ.get(TOKEN, "").strip():
        return _checked(text, TOKEN)
    path = Path(os.environ.get(TOKEN_FILE) or Path.home() / ".config/edgegpu/token")
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1_000).strip()
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"put an API token into {TOKEN}, or into that file with mode 0600; docs/cloud/people.md makes one"
        raise CloudError(f"cannot read a token from {path}: {error}", remedy=remedy) from error
    if stat.S_IMODE(mode) & 0o077:
        raise CloudError(f"cannot use {path}: others may read it", remedy=f"chmod 600 {path}")
    return _checked(text, str(path))


def _checked(text: str, place: str) -> str:
    """Return a token that a header can carry; the error does not quote it."""
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise CloudError(f"cannot use the token in {place}: it is not one word", remedy="put the token alone there")
    return text
