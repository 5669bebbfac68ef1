"""Connections and credentials of a client, made anew when the files that they come from have changed."""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import InsecureRequestWarning

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import stamp
from edgegpu_base.kube.errors import KubeError
from edgegpu_base.kube.kubeconfig import ApiAccess, load, tls_context

_log = logging.getLogger(__name__)

_TOKEN_AGE_S = 60.0
_AGAIN_S = 1.0
"""How long to wait before files are read again that were unusable, perhaps half written."""

_KEPT_CONNECTIONS = 8

# A peer that vanishes without closing is noticed within a minute, also on a silent watch.
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

_Stamps = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ConnectionPool:
    """The connections to one server, the prefix of its paths, and the headers with our credentials."""

    pool: urllib3.HTTPConnectionPool
    prefix: str
    headers: dict[str, str]


class ApiConnection:
    """The current connection to the API server; thread-safe.

    k3s renews its nodes' client certificates in place, and writes kubelet's kubeconfig at each start. Open connections
    stay: a watch ends after minutes, and the next one uses the files' present content.
    """

    def __init__(self, access: ApiAccess, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the connections without sending anything. Raises KubeError if the certificates cannot be used."""
        self._clock = clock
        self._lock = threading.Lock()
        self._stamps: _Stamps = ()  # empty, so that the first use reads the files again: they may have changed
        self._access = access
        self._pool = _pool(access)
        self._token = access.token
        self._token_read: float | None = None
        self._failed: float | None = None

    def connections(self) -> ConnectionPool:
        """Return the connections by the files' present content, or the last ones while that is unusable.

        Raises:
            KubeError: the token's file cannot be read.
        """
        with self._lock:
            self._renew()
            access = self._access
            return ConnectionPool(self._pool, urlsplit(access.server).path.rstrip("/"), self._authorization())

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            self._pool.close()

    def _renew(self) -> None:
        files = self._access.files
        now = self._clock()
        if not files or (self._failed is not None and now - self._failed < _AGAIN_S):
            return
        stamps = _stamps(files)  # taken before the read, so that the next call sees a later change
        if stamps == self._stamps:
            return
        try:
            access = load(files[0])
            pool = self._pool if access == self._access else _pool(access)
        except EdgegpuError as error:
            if self._failed is None:
                _log.warning("%s; the connection stays as it was, and the files are read again", error)
            self._failed = now
            return
        self._stamps = stamps if access.files == files else ()
        self._failed = None
        if access != self._access:
            _log.info("%s or what it names has changed: connecting to %s anew", files[0], access.server)
            # The old connections are closed with the last reference: another thread may be about to use one.
            self._access, self._pool, self._token, self._token_read = access, pool, access.token, None

    def _authorization(self) -> dict[str, str]:
        file, now = self._access.token_file, self._clock()
        if file is not None and (self._token_read is None or now - self._token_read > _TOKEN_AGE_S):
            try:
                self._token = file.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise KubeError(f"cannot read the token {file}: {error}: write it anew") from error
            self._token_read = now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _stamps(files: tuple[Path, ...]) -> _Stamps:
    """Return stamps that change when the files do; for a link, that of its target."""
    found: list[tuple[int, ...]] = []
    for file in files:
        try:
            found.append(stamp(file))
        except OSError:
            found.append(())
    return tuple(found)


def _pool(access: ApiAccess) -> urllib3.HTTPConnectionPool:
    parts = urlsplit(access.server)
    if parts.hostname is None:
        raise KubeError(f"cannot use server {access.server!r}: it names no host")
    if parts.scheme == "http":
        return urllib3.HTTPConnectionPool(
            parts.hostname,
            parts.port,
            maxsize=_KEPT_CONNECTIONS,
            socket_options=_SOCKET_OPTIONS,
        )
    try:
        context = tls_context(access)
    except (ssl.SSLError, ValueError) as error:
        raise KubeError(
            f"cannot use the certificates for {access.server}: {error}: write the kubeconfig anew"
        ) from error
    if not access.verify:
        _log.warning("%s: its certificate is not checked (insecure-skip-tls-verify in the kubeconfig)", access.server)
        urllib3.disable_warnings(InsecureRequestWarning)  # one warning is enough
    return urllib3.HTTPSConnectionPool(
        parts.hostname,
        parts.port,
        maxsize=_KEPT_CONNECTIONS,
        socket_options=_SOCKET_OPTIONS,
        ssl_context=context,
        server_hostname=access.server_name,
        assert_hostname=access.server_name if access.verify else False,
    )
