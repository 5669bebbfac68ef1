"""Envelopes: a line with the signature, then the exact bytes that were signed together with the topic."""

import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_sync.errors import MessageRefusedError, RefusalReason, TooLargeError
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.keys import KeyRing, is_signed_by, key_id, public_text
from edgegpu_sync.topics import Topic, TopicKind
from edgegpu_sync.wire import WIRE_MAX_BYTES, from_base64, to_base64

_DOMAIN = b"edgegpu message 1\n"
_LINE = re.compile(rb"s1 ([0-9a-f]{16}) ([A-Za-z0-9_-]{86})\n")
_BARE = b"s0\n"


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key and its id: a controller's, or a box's."""

    key: Ed25519PrivateKey
    kid: str

    @classmethod
    def of(cls, key: Ed25519PrivateKey) -> "Signer":
        """Return the signer for a key."""
        return cls(key, key_id(public_text(key)))

    def seal(self, topic: Topic, body: bytes) -> bytes:
        """Return the payload for a body under a topic: signature line, then the body as it is.

        The signature covers the topic: device, kind, op and id cannot be changed on the way.

        Raises:
            TooLargeError: when the payload has more than 64 KiB.
        """
        signature = to_base64(self.key.sign(_signed(topic, body)))
        return _payload(b"s1 %s %s\n" % (self.kid.encode(), signature.encode()), body)


def bare(keys_body: bytes) -> bytes:
    """Return the payload for `down/keys`, which no controller signs: the root's signatures are inside."""
    return _payload(_BARE, keys_body)


def _payload(line: bytes, body: bytes) -> bytes:
    payload = line + body
    if len(payload) > WIRE_MAX_BYTES:
        raise TooLargeError(f"cannot send {len(payload)} bytes: the limit is {WIRE_MAX_BYTES}")
    return payload


def _signed(topic: Topic, body: bytes) -> bytes:
    return _DOMAIN + str(topic).encode() + b"\n" + body


def open_down(topic: Topic, payload: bytes, *, me: DeviceId, ring: KeyRing) -> bytes:
    """Return the body of a message to this box; the signature is verified, but `down/keys` has none here.

    Raises:
        MessageRefusedError: UnknownTopic (an uplink's), WrongDevice, Oversize, Malformed, UnknownKey, Forged.
    """
    if not topic.kind.down:
        raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, f"{topic.kind} does not come down")
    if topic.device != me:
        raise MessageRefusedError(RefusalReason.WRONG_DEVICE, f"it is for {topic.device}")
    if topic.kind is TopicKind.KEYS:
        return _unsigned(payload)
    kid, signature, body = _split(payload)
    public = ring.public(kid)
    if public is None:
        raise MessageRefusedError(RefusalReason.UNKNOWN_KEY, f"key {kid} is not in key set {ring.version}")
    _verify(public, signature, _signed(topic, body))
    return body


def open_up(topic: Topic, payload: bytes, *, public: str) -> bytes:
    """Return the verified body of a message from the box whose public key is `public`.

    Raises:
        MessageRefusedError: UnknownTopic (a downlink's), Oversize, Malformed, UnknownKey, Forged.
    """
    if topic.kind.down:
        raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, f"{topic.kind} does not come up")
    kid, signature, body = _split(payload)
    if kid != key_id(public):
        raise MessageRefusedError(RefusalReason.UNKNOWN_KEY, f"key {kid} is not that of {topic.device}")
    _verify(public, signature, _signed(topic, body))
    return body


def _unsigned(payload: bytes) -> bytes:
    _check_size(payload)
    if not payload.startswith(_BARE):
        raise MessageRefusedError(RefusalReason.MALFORMED, "keys come without a controller's signature")
    return payload[len(_BARE) :]


def _split(payload: bytes) -> tuple[str, str, bytes]:
    _check_size(payload)
    line = _LINE.match(payload)
    if line is None:
        raise MessageRefusedError(RefusalReason.MALFORMED, "no signature line")
    signature = line[2].decode()
    try:
        from_base64(signature)
    except ValueError as error:
        raise MessageRefusedError(RefusalReason.MALFORMED, f"signature line: {error}") from error
    return line[1].decode(), signature, payload[line.end() :]


def _check_size(payload: bytes) -> None:
    if len(payload) > WIRE_MAX_BYTES:
        raise MessageRefusedError(RefusalReason.OVERSIZE, f"{len(payload)} bytes, the limit is {WIRE_MAX_BYTES}")


def _verify(public: str, signature: str, signed: bytes) -> None:
    if not is_signed_by(public, signature, signed):
        raise MessageRefusedError(RefusalReason.FORGED, "the signature is not that of this message under this topic")
