"""The installer's client of the API server: raw JSON through the official client, which only this module imports."""

import email.utils
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

from kubernetes.client import ApiClient, ApiException, Configuration
from urllib3.exceptions import HTTPError, ProtocolError

from edgegpu_base.kube.kubeconfig import ApiAccess
from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.cluster.https import access_context
from edgegpu_installer.cluster.kinds import Json, ObjectKind, kind_of, name_of, namespace_of
from edgegpu_installer.errors import InstallError

FIELD_MANAGER = "edgegpu-installer"
"""The name in `managedFields` of the fields that the installer wrote."""

_T = TypeVar("_T")

_CONNECT_S = 5.0
_PAGE = 200
_FIRST_ERROR = 400
_LONGEST_TEXT = 500

_MISSING, _CONFLICT, _INVALID = 404, 409, 422
_REMEDIES = {
    401: "the account is not known any more: run `edgegpu install` on a server",
    403: "use the administrator's kubeconfig (k3s: /etc/rancher/k3s/k3s.yaml), as root",
}
_UNREACHED = "see that k3s runs: systemctl status k3s; journalctl -u k3s -e"


class ClusterError(InstallError):
    """A call to the API server failed. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy or _REMEDIES.get(status, "try again"))
        self.status = status

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == _MISSING

    @property
    def is_conflict(self) -> bool:
        """Whether the object exists already, or has another version than the call expected."""
        return self.status == _CONFLICT

    @property
    def is_invalid(self) -> bool:
        """Whether the API server refused the object as invalid."""
        return self.status == _INVALID

    @property
    def is_unreached(self) -> bool:
        """Whether the API server did not answer, or cannot now: the call may succeed later."""
        return self.status == 0 or self.status == 429 or self.status >= 500  # noqa: PLR2004, PLR1714  (HTTP's own)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A successful answer: the object, and the server's time, None when it gave none."""

    body: Json
    date: datetime | None


class ClusterClient:
    """A client of one API server under one account, for any thread. Close it, or use it in a `with`."""

    def __init__(self, access: ApiAccess, *, timeout_s: float = 10.0) -> None:
        """Prepare the connections without sending anything.

        Args:
            access: the server and the account.
            timeout_s: how long one call may take.

        Raises:
            ClusterError: the certificates cannot be used.
        """
        self.access = access
        self._timeout_s = timeout_s
        self._client = _client(access)

    @classmethod
    def from_kubeconfig(cls, path: Path, *, timeout_s: float = 10.0) -> Self:
        """Return a client for a kubeconfig's current context.

        Raises:
            InstallError: the file cannot be used.
        """
        return cls(kubeconfig.read(path), timeout_s=timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()  # type: ignore[no-untyped-call]  # the client is annotated in parts only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Json:
        """Return an object. Raises ClusterError, also when the object does not exist."""
        return self.call("GET", kind.path(name, namespace)).body

    def find(self, kind: ObjectKind, name: str, namespace: str = "") -> Json | None:
        """Return an object; None when it does not exist. Raises ClusterError."""
        return self.find_answer(kind, name, namespace)[0]

    def find_answer(self, kind: ObjectKind, name: str, namespace: str = "") -> tuple[Json | None, datetime | None]:
        """Return an object or None, and the server's time of the answer. Raises ClusterError."""
        try:
            answer = self.call("GET", kind.path(name, namespace))
        except ClusterError as error:
            if not error.is_missing:
                raise
            return None, None
        return answer.body, answer.date

    def items(self, kind: ObjectKind, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Json]:
        """Return the objects of a namespace, or of all, that match the selectors. Raises ClusterError."""
        params = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        found: list[Json] = []
        while True:
            answer = self.call("GET", kind.path(namespace=namespace), params=params).body
            found += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return found
            params["continue"] = str(token)

    def create(self, item: Json) -> Json:
        """Create an object and return it as stored. Raises ClusterError, also when the object exists."""
        path = kind_of(item).path(namespace=namespace_of(item))
        return self.call("POST", path, body=item, params={"fieldManager": FIELD_MANAGER}).body

    def apply(self, item: Json) -> Json:
        """Apply an object (server-side apply): our fields become as given, those of others stay.

        Fields that others own are taken over, because the installer owns what it applies. Raises ClusterError.
        """
        path = kind_of(item).path(name_of(item), namespace_of(item))
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.call("PATCH", path, body=item, params=params, content_type="application/apply-patch+yaml").body

    def patch(self, kind: ObjectKind, name: str, change: Json, namespace: str = "", *, sub: str = "") -> Json:
        """Change an object by a merge patch; `metadata.resourceVersion` in it is a precondition. Raises ClusterError.

        Args:
            kind: of the object.
            name: of the object.
            change: the patch.
            namespace: of the object.
            sub: a subresource such as `status`.
        """
        path = kind.path(name, namespace, sub)
        params = {"fieldManager": FIELD_MANAGER}
        return self.call("PATCH", path, body=change, params=params, content_type="application/merge-patch+json").body

    def delete(self, kind: ObjectKind, name: str, namespace: str = "", *, version: str = "") -> bool:
        """Delete an object, with `version` only in that version; return whether it existed. Raises ClusterError."""
        body = {"preconditions": {"resourceVersion": version}} if version else None
        try:
            self.call("DELETE", kind.path(name, namespace), body=body)
        except ClusterError as error:
            if not error.is_missing:
                raise
            return False
        return True

    def ready(self) -> bool:
        """Return whether the API server answers and is ready; raises nothing when it is not."""
        try:
            self.call("GET", "/readyz")
        except ClusterError:
            return False
        return True

    def version(self) -> str:
        """Return the server's version, such as `v1.33.5+k3s1`. Raises ClusterError."""
        return str(self.call("GET", "/version").body.get("gitVersion", ""))

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        """Make one call and return its answer. Raises ClusterError."""
        what = f"cannot {method} {path} at {self.access.server}"
        query = urlencode({key: value for key, value in (params or {}).items() if value})
        url = f"{self.access.server}{path}" + (f"?{query}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        if body is not None:
            headers["Content-Type"] = content_type
        status, text, date = self._send(method, url, headers=headers, body=body, what=what)
        if status >= _FIRST_ERROR:
            raise ClusterError(f"{what}: {status}: {_said(text)}", status=status)
        return ApiResponse(_object(text, what), date)

    def _send(
        self, method: str, url: str, *, headers: dict[str, str], body: object, what: str
    ) -> tuple[int, bytes, datetime | None]:
        timeout = (min(_CONNECT_S, self._timeout_s), self._timeout_s)

        def once() -> tuple[int, bytes, datetime | None]:
            answer = self._client.call_api(method, url, dict(headers), body, None, timeout)
            text: bytes = answer.read()  # type: ignore[no-untyped-call]
            return answer.status, text, _date(answer.headers.get("Date"))

        try:
            return _twice(once) if method == "GET" else once()
        except (HTTPError, ApiException, OSError) as error:
            cause = error.reason if isinstance(error, ApiException) else error
            raise ClusterError(f"{what}: {_one_line(cause)}", remedy=_UNREACHED) from error


def _twice(read: Callable[[], _T]) -> _T:
    """Read, and read again when the server closed a kept connection just as it was used."""
    with suppress(ProtocolError):
        return read()
    return read()


def _client(access: ApiAccess) -> ApiClient:
    # An empty proxy, not None: with None the client would use HTTPS_PROXY, which is for the download.
    settings = Configuration(
        host=access.server, proxy="", no_proxy="", retries=False, tls_server_name=access.server_name
    )
    settings.verify_ssl = access.verify
    client = ApiClient(settings)
    if access.server.startswith("https:"):
        try:
            client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = access_context(access)
        except (ssl.SSLError, ValueError) as error:
            raise ClusterError(
                f"cannot use the certificates for {access.server}: {error}", remedy="write the kubeconfig anew"
            ) from error
    return client


def _date(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return email.utils.parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


def _object(text: bytes, what: str) -> Json:
    if text[:1] != b"{":
        return {}  # /readyz says "ok"
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"{what}: the answer is not JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _said(text: bytes) -> str:
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text.decode("utf-8", "replace")
    return _one_line(message) or "no reason given"


def _one_line(what: object) -> str:
    return " ".join(str(what).split())[:_LONGEST_TEXT]
