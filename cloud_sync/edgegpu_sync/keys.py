"""The controllers' keys as a box knows them: sets whose version only rises, each signed by an offline root key."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field, TypeAdapter

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import Count, MessageBody, Sha256, WireModel, decode, from_base64, to_base64

_DOMAIN = b"edgegpu key set 1\n"

PublicKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{43}$")]
"""The 32 bytes of an Ed25519 public key in base64url without padding."""


class ControllerKey(WireModel):
    """A key whose signatures a box obeys."""

    public: PublicKey


class KeySet(MessageBody):
    """Version after version; `previous` is the SHA-256 of the text of the one before, `root` signs the one after."""

    version: Annotated[Count, Field(ge=1)]
    previous: Sha256
    root: PublicKey
    keys: Annotated[tuple[ControllerKey, ...], Field(min_length=1, max_length=32)]


_READER = TypeAdapter(KeySet)


@lru_cache(maxsize=16_384)
def key_id(public: str) -> str:
    """Return the short id of a public key, as it stands in a signature line: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(from_base64(public)).hexdigest()[:16]


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public half of a key as key sets hold it."""
    return to_base64(key.public_key().public_bytes_raw())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The keys that a box holds: the root in effect, the version and hash of its key set, and the keys by their id.

    `KeyRing.pinned(root)` is the ring at an enrolment: it accepts the first set that the root has signed as it is.
    """

    root: str
    version: int
    digest: str
    keys: tuple[tuple[str, str], ...]

    @classmethod
    def pinned(cls, root: str) -> "KeyRing":
        """Return the ring of a box at its enrolment, which holds nothing but the root key."""
        return cls(root=root, version=0, digest="", keys=())

    def public(self, kid: str) -> str | None:
        """Return the public key with this id, None when the set has none."""
        return dict(self.keys).get(kid)

    def follow(self, chain: Sequence[KeySetLink]) -> "KeyRing":
        """Return the ring after the newer sets of a chain, each checked against the one before it.

        Raises:
            MessageRefusedError: OldKeySet when no set is newer; BrokenChain when a step is missing or follows another
                set; Forged when the root in effect did not sign a set; Malformed. The ring is unchanged then.
        """
        ring = self
        for link in chain:
            ring = ring._step(link)
        if ring.version == self.version:
            raise MessageRefusedError(RefusalReason.OLD_KEY_SET, f"the newest set is not above version {self.version}")
        return ring

    def no_older(self, chain: Sequence[KeySetLink]) -> "KeyRing":
        """Return the ring that the chain leads to, or this ring where the chain is no newer or comes from elsewhere."""
        try:
            return self.follow(chain)
        except MessageRefusedError:
            return self

    def _step(self, link: KeySetLink) -> "KeyRing":
        text = link.set.encode()
        new = decode(_READER, text)
        if new.version <= self.version:
            return self
        if self.version and new.version != self.version + 1:
            raise MessageRefusedError(
                RefusalReason.BROKEN_CHAIN, f"version {new.version} does not follow {self.version}"
            )
        if not is_signed_by(self.root, link.sig, _DOMAIN + text):
            raise MessageRefusedError(
                RefusalReason.FORGED, f"key set {new.version} is not signed by the root key that is in effect"
            )
        if self.version and new.previous != self.digest:
            raise MessageRefusedError(
                RefusalReason.BROKEN_CHAIN, f"version {new.version} follows another {self.version}"
            )
        return replace(
            self,
            root=new.root,
            version=new.version,
            digest=hashlib.sha256(text).hexdigest(),
            keys=tuple((key_id(key.public), key.public) for key in new.keys),
        )


def is_signed_by(public: str, signature: str, signed: bytes) -> bool:
    """Whether the Ed25519 key with this public half has signed these bytes; both texts are base64url."""
    try:
        Ed25519PublicKey.from_public_bytes(from_base64(public)).verify(from_base64(signature), signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def next_link(
    root: Ed25519PrivateKey,
    *,
    keys: Sequence[str],
    before: KeySetLink | None = None,
    next_root: str | None = None,
) -> KeySetLink:
    """Sign the key set that follows `before`; this is done offline, where the root key is.

    Args:
        root: the root key in effect.
        keys: public keys of the controllers that boxes shall obey from now on.
        before: the newest link; None for the first set.
        next_root: the public root key that will sign the set after this one; None: the same.
    """
    text = before.set.encode() if before else b""
    new = KeySet(
        version=decode(_READER, text).version + 1 if before else 1,
        previous=hashlib.sha256(text).hexdigest(),
        root=next_root or public_text(root),
        keys=tuple(ControllerKey(public=public) for public in keys),
    )
    value = json.dumps(new.model_dump(mode="json"), separators=(",", ":"))
    return KeySetLink(set=value, sig=to_base64(root.sign(_DOMAIN + value.encode())))
