"""HTTPS for large files: upload an archive, download a bundle; with the box's certificate where that is asked for."""

import contextlib
import errno
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import urllib3
from urllib3.exceptions import HTTPError

from edgegpu_agent import proxied
from edgegpu_agent.actions.programs import ActionTimer

_CONNECT_S, _READ_S = 20.0, 60.0
_CHUNK = 65_536
_TRIES = 5
_FIRST_AGAIN_S = 2.0
_OK, _PARTIAL, _MULTIPLE, _FAULT = 200, 206, 300, 500
_UNSATISFIABLE = 416
_PASSING = frozenset({408, 425, 429})
MOST_BYTES = 2 * 1024**3


class WebError(Exception):
    """A transfer that failed; the text is "cannot x: cause". `final`: another try would end the same."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsClient:
    """An HTTPS client that retries and follows no redirects. `proxy`: its address, or empty.

    `ca` is trusted beside the system's CAs; `cert` and `key` are this box's certificate and key. The PEM files are read
    again for each call, because certificates are renewed; missing ones are left out.
    """

    timer: ActionTimer
    ca: Path
    cert: Path | None = None
    key: Path | None = None
    proxy: str = ""

    def put(self, url: str, path: Path) -> None:
        """Upload a file with PUT, which may be repeated.

        Raises:
            WebError: the server did not accept the file.
            ActionStopped: the agent ends.
        """
        self._try(lambda: self._put(url, path))

    def fetch(self, url: str, path: Path, *, free_bytes: int) -> None:
        """Download into a file; resume a download that broke off, also one of an earlier process.

        Args:
            url: what to download.
            path: the file; what it holds already does not count against `free_bytes`.
            free_bytes: how much more the disk may take.

        Raises:
            WebError: the download failed, or there is no room; after a final error the file is removed.
            ActionStopped: the agent ends; what was downloaded stays.
        """
        have = path.stat().st_size if path.exists() else 0
        most_bytes = min(max(0, free_bytes) + have, MOST_BYTES)
        try:
            self._try(lambda: self._fetch(url, path, most_bytes))
        except WebError as error:
            if error.final:
                path.unlink(missing_ok=True)
            raise

    def _try(self, once: Callable[[], None]) -> None:
        wait_s = _FIRST_AGAIN_S
        for left in range(_TRIES - 1, -1, -1):
            try:
                once()
            except WebError as error:
                if error.final or not left:
                    raise
            else:
                return
            self.timer.pause(wait_s)
            wait_s *= 2

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ca.is_file():
                context.load_verify_locations(self.ca)
            if self.cert is not None and self.cert.is_file():
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise WebError(f"cannot use this box's certificate: {error}", final=True) from error
        return context

    @contextlib.contextmanager
    def _call(
        self, method: str, url: str, headers: dict[str, str], *, body: IO[bytes] | None = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        with proxied.pool(self.proxy, ssl_context=self._context(), num_pools=1) as pool:
            try:
                response = pool.request(
                    method,
                    url,
                    body=body,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                    retries=False,
                    timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
                )
                with contextlib.closing(response):
                    yield response
            except (HTTPError, OSError) as error:
                full = isinstance(error, OSError) and error.errno == errno.ENOSPC
                raise WebError(f"cannot {method} {_without_query(url)}: {error}", final=full) from error

    def _put(self, url: str, path: Path) -> None:
        length = str(path.stat().st_size)
        with path.open("rb") as file, self._call("PUT", url, {"Content-Length": length}, body=file) as response:
            _check_status(response.status, f"put the archive to {_without_query(url)}")

    def _fetch(self, url: str, path: Path, most_bytes: int) -> None:
        have = path.stat().st_size if path.exists() else 0
        asked = {"Range": f"bytes={have}-"} if have else {}
        with self._call("GET", url, asked) as response:
            if response.status == _UNSATISFIABLE:  # all of it is here, or the server has another file now
                if response.headers.get("Content-Range", "").endswith(f"/{have}"):
                    return
                path.unlink()
                raise WebError(f"cannot go on fetching {_without_query(url)}: the file on the host has changed")
            _check_status(response.status, f"fetch {_without_query(url)}")
            no_room = WebError(f"cannot fetch {_without_query(url)}: the disk has no room for it", final=True)
            begins = have if response.status == _PARTIAL else 0
            if begins + _length(response) > most_bytes:
                raise no_room  # kubelet evicts pods when the disk is full
            with path.open("ab" if begins else "wb") as file:
                for chunk in response.stream(_CHUNK):
                    if file.tell() + len(chunk) > most_bytes:
                        raise no_room
                    file.write(chunk)
                    self.timer.pause(0)


def _length(response: urllib3.BaseHTTPResponse) -> int:
    """Return the answer's Content-Length; 0 without one."""
    said = response.headers.get("Content-Length", "")
    return int(said) if said.isdecimal() else 0


def _check_status(status: int, what: str) -> None:
    if _OK <= status < _MULTIPLE:
        return
    final = status < _FAULT and status not in _PASSING
    raise WebError(f"cannot {what}: the host answers {status}", final=final)


def _without_query(url: str) -> str:
    """Return an address without its query, which may be secret."""
    return url.partition("?")[0]
