"""Whether a release may be installed: signed by the release key, and not older than what is here. Pure."""

import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edgegpu_sync.base64url import from_text, to_text
from edgegpu_sync.errors import SyncError
from edgegpu_sync.states import Codes

DOMAIN = "edgegpu release 1"

_PARTS = re.compile(r"[0-9]+|[a-z]+")
_BEFORE = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1}


class ReleaseError(ValueError):
    """A release that is not taken; `code` is the result's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def signed_text(version: str, sha256: str) -> bytes:
    """Return what the release key signs: a line that says what it is, the version, the checksum of the bundle."""
    return f"{DOMAIN}\n{version}\n{sha256}\n".encode()


def sign(key: Ed25519PrivateKey, version: str, sha256: str) -> str:
    """Return the signature as a command carries it: 86 characters of base64url."""
    return to_text(key.sign(signed_text(version, sha256)))


def check_signature(key: str, *, version: str, sha256: str, signature: str) -> None:
    """See that the release key has signed this bundle as this version.

    Args:
        key: the public key, 43 characters of base64url, as it stands in release.pub.
        version: of the release.
        sha256: of the bundle, 64 hexadecimal digits.
        signature: 86 characters of base64url.

    Raises:
        ReleaseError: NO_RELEASE_KEY for a key that is none, BAD_SIGNATURE.
    """
    try:
        public = Ed25519PublicKey.from_public_bytes(from_text(key.strip()))
    except (SyncError, ValueError) as error:
        raise ReleaseError(Codes.NO_RELEASE_KEY, f"this version's release.pub holds no key: {error}") from error
    try:
        public.verify(from_text(signature), signed_text(version, sha256))
    except (InvalidSignature, SyncError, ValueError) as error:
        text = f"the release key has not signed this bundle as version {version}"
        raise ReleaseError(Codes.BAD_SIGNATURE, text) from error


def check_order(now: str, wanted: str) -> None:
    """See that the wanted version is not older than that which runs.

    Raises:
        ReleaseError: DOWNGRADE.
    """
    if _order(wanted) < _order(now):
        raise ReleaseError(Codes.DOWNGRADE, f"{wanted} is older than {now}, which runs here")


def _order(version: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[tuple[int, str], ...]]:
    """Return what versions are compared by: 1.2rc1 < 1.2 = 1.2.0 < 1.2+1 < 1.2+2 < 1.2.post1 < 1.10.

    What stands behind a + comes after the version without it, as in PEP 440: letters before numbers.
    """
    plain, _, local = version.lower().partition("+")
    first = re.match(r"[0-9]+(\.[0-9]+)*", plain)
    numbers = [int(part) for part in first[0].split(".")] if first else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    words = _PARTS.findall(plain[first.end() :] if first else plain)
    rest = [(0, int(word)) if word.isdigit() else (_BEFORE.get(word, 1), 0) for word in words]
    behind = [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS.findall(local)]
    return tuple(numbers), (*rest, (0, 0)), tuple(behind)
