"""Certificates in files, for the tests of the link: names, dates and revocations as a test wants them."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kits.cert import NOW, Authority

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVER_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class TestCa:
    """An authority of a test's own."""

    __test__ = False

    def __init__(self, name: str) -> None:
        self._authority = Authority(name)

    def write(self, path: Path) -> Path:
        """Write the authority's own certificate."""
        path.write_text(self._authority.pem)
        return path

    def issue(
        self, folder: Path, name: str, *, names: Sequence[str] = (), days: tuple[float, float] = (-1, 365)
    ) -> Shown:
        """Write a certificate for `name` with a new key: a server's where it has host `names`.

        `days`: from when until when, counted from now.
        """
        first, last = (dt.timedelta(days=each) for each in days)
        pair = self._authority.pair(name, hosts=names, start=NOW + first, life=last - first)
        stem = secrets.token_hex(8)
        shown = Shown(folder / f"{stem}.crt", folder / f"{stem}.key")
        shown.cert.write_text(pair.cert)
        shown.key.write_text(pair.key)
        shown.key.chmod(0o600)
        return shown

    def crl(self, path: Path, *revoked: Path) -> Path:
        """Write the list of revoked certificates."""
        path.write_text(self._authority.crl(*(one.read_text() for one in revoked)))
        return path
