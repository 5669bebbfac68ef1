"""Signatures: one bit changed anywhere, in the payload or in the topic, and the message is refused."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from property.sync_cases import topics

from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.keys import KeyRing, next_link, public_text
from edgegpu_sync.signing import Signer, open_down, open_up
from edgegpu_sync.topics import Topic, TopicKind

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
SIGNER = Signer.of(KEY)
RING = KeyRing.pinned(public_text(KEY)).follow([next_link(KEY, keys=[public_text(KEY)])])


def opened(topic: Topic, payload: bytes) -> bytes:
    if topic.kind.down:
        return open_down(topic, payload, me=topic.device, ring=RING)
    return open_up(topic, payload, public=public_text(KEY))


signed_topics = topics.filter(lambda topic: topic.kind is not TopicKind.KEYS)


@given(signed_topics, st.binary(max_size=40), st.integers(0, 2_000))
@settings(max_examples=100)
def test_a_bit_of_the_payload(topic: Topic, body: bytes, bit: int) -> None:
    payload = SIGNER.seal(topic, body)
    assert opened(topic, payload) == body
    bit %= len(payload) * 8
    changed = bytearray(payload)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        opened(topic, bytes(changed))
    except MessageRefusedError:
        return
    raise AssertionError(bit)


@given(signed_topics, signed_topics, st.binary(max_size=40))
@settings(max_examples=50)
def test_another_topic(topic: Topic, other: Topic, body: bytes) -> None:
    assume(topic != other)
    try:
        opened(other, SIGNER.seal(topic, body))
    except MessageRefusedError:
        return
    raise AssertionError(other)


@given(signed_topics, st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes(topic: Topic, payload: bytes) -> None:
    try:
        opened(topic, payload)
    except MessageRefusedError:
        return
    raise AssertionError(payload)
