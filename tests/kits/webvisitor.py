"""People and programs at a real console over HTTPS, without a browser; every answer is kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3

from edgegpu_cloud.console.visitor import SESSION_COOKIE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kits.secretbook import Outputs, SecretBook

_CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
_STREAM_S = 1.0


class Answer:
    """Status, headers and text of an answer."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status, self.headers, self.data = status, headers, data
        self.text = data.decode("utf-8", "replace")

    @property
    def json(self) -> Any:  # noqa: ANN401  (whatever an API answers)
        return json.loads(self.data)


class Client:
    """Sends requests to one server; each answer, with its headers, is an output of the run."""

    def __init__(self, url: str, ca: Path, outputs: Outputs, *, who: str, headers: Mapping[str, str]) -> None:
        self.url, self.who, self.headers = url, who, dict(headers)
        self._pool = urllib3.PoolManager(ca_certs=str(ca), retries=False, timeout=60)
        self._outputs = outputs

    def send(
        self, method: str, path: str, body: bytes | None = None, *, shows: Iterable[str] = (), **headers: str
    ) -> Answer:
        """Send a request; `shows`: the secrets that the answer is there to show."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._pool.request(
            method, self.url + path, body=body, headers={**self.headers, **named}, redirect=False, decode_content=True
        )
        kept = "\n".join(f"{name}: {value}" for name, value in answer.headers.items()).encode() + b"\n\n" + answer.data
        self._outputs.add(f"{method} {path} as {self.who}: {answer.status}", kept, shows=shows, may=self._own)
        return Answer(answer.status, answer.headers, answer.data)

    def listen(self, path: str) -> int:
        """Keep the beginning of an answer that does not end; return its status."""
        patience = urllib3.Timeout(connect=30, read=_STREAM_S)
        answer = self._pool.request(
            "GET", self.url + path, headers=self.headers, preload_content=False, timeout=patience, redirect=False
        )
        data = b""
        try:
            while piece := answer.read1(65_536):
                data += piece
        except urllib3.exceptions.HTTPError:
            pass  # it is quiet now
        answer.close()
        self._outputs.add(f"GET {path} as {self.who}: {answer.status}", data, may=self._own)
        return answer.status

    @property
    def _own(self) -> list[str]:
        """The secrets that any answer to this client may have."""
        return []

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


class ApiClient(Client):
    """A program with an API token."""

    def get(self, path: str) -> Answer:
        return self.send("GET", f"/api/v1{path}")

    def post(self, path: str, body: object, *, shows: Iterable[str] = (), **headers: str) -> Answer:
        more = {"content_type": "application/json", **headers}
        return self.send("POST", f"/api/v1{path}", json.dumps(body).encode(), shows=shows, **more)


class Person(Client):
    """A person with a session. Its cookie is a secret; so is its CSRF token, which stands in forms for this person."""

    def __init__(self, url: str, ca: Path, outputs: Outputs, book: SecretBook, *, who: str) -> None:
        browsers = {"accept-language": "en", "sec-fetch-site": "same-origin"}
        super().__init__(url, ca, outputs, who=who, headers=browsers)
        self._book, self.csrf = book, ""

    @property
    def _own(self) -> list[str]:
        return [f"csrf of {self.who}"]

    def get(self, path: str, *, shows: Iterable[str] = ()) -> Answer:
        return self.send("GET", path, shows=shows)

    def post(self, path: str, form: Mapping[str, str], *, shows: Iterable[str] = (), **headers: str) -> Answer:
        body = urlencode({"csrf": self.csrf, **form} if self.csrf else form).encode()
        more = {"content_type": "application/x-www-form-urlencoded", **headers}
        return self.send("POST", path, body, shows=shows, **more)

    def enter(self, path: str, form: Mapping[str, str]) -> Answer:
        """Send a form that begins a session: the cookie stands in this answer alone."""
        name = f"session of {self.who}"
        answer = self.post(path, form, shows=[name])
        found = re.search(rf"{SESSION_COOKIE}=([^;]+)", answer.headers.get("set-cookie", ""))
        assert found is not None, (answer.status, answer.text[-2_000:])
        self._book.add(name, found[1])
        self.headers["cookie"] = f"{SESSION_COOKIE}={found[1]}"
        token = _CSRF.search(self.get("/account").text)
        assert token is not None
        self.csrf = self._book.add(f"csrf of {self.who}", token[1])
        return answer
