"""The secrets of a run and the forms in which they might leak, and whatever a run has put out, to be searched."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from markupsafe import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST_BYTES = 8
"""A shorter text would be found by chance."""


def _encoded(value: bytes) -> Iterator[bytes]:
    """Yield the base64 of a value wherever it stands in a longer text: what does not depend on its neighbours."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + value)
        whole = text[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield whole
        yield whole.replace(b"+", b"-").replace(b"/", b"_")


def _forms(text: str) -> Iterator[bytes]:
    yield text.encode()
    for form in (quote(text, safe=""), quote_plus(text), html.escape(text), str(escape(text)), repr(text)[1:-1]):
        yield form.encode()
    for ascii_alone in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_alone)[1:-1].encode()
    yield text.encode().hex().encode()
    yield from _encoded(text.encode())


class SecretBook:
    """Secrets by name: each is looked for as it is, escaped, in hexadecimal digits, in base64 at every offset."""

    def __init__(self) -> None:
        self.needles: dict[str, set[bytes]] = {}
        self.texts: dict[str, str] = {}

    def add(self, name: str, text: str) -> str:
        """Add a text; return it. A name stands for one secret or for several of a kind."""
        assert len(text) >= LEAST_BYTES, name
        self.texts[name] = text
        self.needles.setdefault(name, set()).update(_forms(text))
        return text

    def add_key(self, name: str, pem: str) -> None:
        """Add a private key: the number, and the lines of the PEM that have some of it (others are the public half)."""
        number = _number(pem)
        pieces = {number[at : at + LEAST_BYTES] for at in range(len(number) - LEAST_BYTES)}
        lines = [line for line in pem.splitlines() if not line.startswith("-----")]
        mine = [line.encode() for line in lines if any(piece in base64.b64decode(line) for piece in pieces)]
        assert mine, name
        self.needles.setdefault(name, set()).update([*mine, number, number.hex().encode(), *_encoded(number)])

    def found(self, data: bytes) -> set[str]:
        """Return the names of the secrets that stand in data."""
        return {name for name, forms in self.needles.items() if any(form in data for form in forms)}


def _number(pem: str) -> bytes:
    key = load_pem_private_key(pem.encode(), None)
    if isinstance(key, Ed25519PrivateKey):
        return key.private_bytes_raw()
    assert isinstance(key, EllipticCurvePrivateKey)
    return key.private_numbers().private_value.to_bytes(32, "big")


@dataclass(frozen=True, slots=True)
class Output:
    """Something that was put out. `shows`: the secrets that stand there for a reason; `may`: those that may or not."""

    where: str
    data: bytes = field(repr=False)
    shows: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()


class Outputs:
    """All that a run has put out, each text once."""

    def __init__(self) -> None:
        self.all: dict[tuple[bytes, frozenset[str], frozenset[str]], Output] = {}

    def add(self, where: str, data: bytes, *, shows: Iterable[str] = (), may: Iterable[str] = ()) -> None:
        """Keep an output."""
        one = Output(where, data, frozenset(shows), frozenset(may))
        self.all.setdefault((data, one.shows, one.may), one)

    def leaks(self, book: SecretBook) -> list[str]:
        """Return what stands where it must not, and what does not stand where it is shown."""
        wrong = []
        for one in self.all.values():
            found = book.found(one.data)
            wrong += [f"{one.where}: {name}" for name in sorted(found - one.shows - one.may)]
            wrong += [f"{one.where} does not show {name}" for name in sorted(one.shows - found)]
        return wrong
