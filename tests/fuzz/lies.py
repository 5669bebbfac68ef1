"""Hostile messages by structure, each with what has to become of it; the properties' own judgement, not the agent's.

`Lie.whys` are the names under which it may be counted, one of them; empty: it is no refusal (a message that was really
sent, once more) and must have no effect either.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuzz.material import Heard, Material
from fuzz.shapes import command_topics, misfits, other_topics
from hypothesis import assume
from hypothesis import strategies as st

from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.rules.replay_guard import WINDOW
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind, parse
from edgegpu_sync.wire import MAX_COUNT, WIRE_MAX_BYTES, to_base64

Draw = Any  # what `st.composite` gives; its type cannot be written without a name of hypothesis's own

TOPIC_MAX_BYTES = 600
"""The broker takes packets of 1 KiB above a payload."""

_FAR = 1_000 * WINDOW
"""A seq that no run comes near to."""

_ALTERED = frozenset({RefusalReason.FORGED, RefusalReason.MALFORMED, RefusalReason.UNKNOWN_KEY})
_NOT_READ = frozenset({RefusalReason.MALFORMED, RefusalReason.UNKNOWN_VERSION})


@dataclass(frozen=True, slots=True)
class Lie:
    """A message for the broker, and how the box must count it."""

    way: str
    topic: str
    payload: bytes
    retain: bool
    whys: frozenset[RefusalReason]


def one(*whys: RefusalReason) -> frozenset[RefusalReason]:
    """Return the names, as they stand in a lie."""
    return frozenset(whys)


def sealed(signer: Signer, topic: str, body: bytes) -> bytes:
    """Return a payload with a signature line; too long ones are for the box to refuse, so they can be made here."""
    signature = signer.key.sign(b"edgegpu message 1\n" + topic.encode() + b"\n" + body)
    return b"s1 %s %s\n%s" % (signer.kid.encode(), to_base64(signature).encode(), body)


@st.composite
def bent(draw: Draw, have: Material) -> Lie:
    """Turn bits of what was really sent, cut it, or put something behind it."""
    was = draw(st.sampled_from(have.signed))
    payload = bytearray(was.payload)
    match draw(st.sampled_from(("bits", "signature", "cut", "longer"))):
        case "bits":
            for at in draw(st.sets(st.integers(0, len(payload) * 8 - 1), min_size=1, max_size=6)):
                payload[at // 8] ^= 1 << at % 8
        case "signature":
            at = draw(st.integers(len("s1 ") + 17, len("s1 ") + 17 + 85))
            payload[at] ^= 1 << draw(st.integers(0, 7))
        case "cut":
            del payload[draw(st.integers(0, len(payload) - 1)) :]
        case _:
            payload += draw(st.binary(min_size=1, max_size=40))
    return Lie("bent", was.topic, bytes(payload), draw(st.booleans()), _ALTERED)


@st.composite
def swapped(draw: Draw, have: Material) -> Lie:
    """Keep the signature of one message and take the body of another, or one with a field changed."""
    was = draw(st.sampled_from(have.signed))
    line = was.payload.partition(b"\n")[0]
    if draw(st.booleans()):
        body = draw(st.sampled_from([*have.signed, *have.other_down, *have.up])).body
    else:
        value = was.value
        value[draw(st.sampled_from(sorted(value)))] = draw(st.integers() | st.text(max_size=20) | st.none())
        body = json.dumps(value).encode()
    assume(body != was.body)
    return Lie("swapped", was.topic, line + b"\n" + body, draw(st.booleans()), one(RefusalReason.FORGED))


@st.composite
def resigned(draw: Draw, have: Material) -> Lie:
    """Sign with a key that nobody knows: what was sent, or a command that would be done."""
    topic, body = draw(st.sampled_from(have.signed)).topic, b""
    if draw(st.booleans()):
        topic = draw(command_topics(have.me))
        body = json.dumps(_command(have, seq=draw(_seqs(have)))).encode()
    else:
        body = draw(st.sampled_from(have.signed)).body
    return Lie(
        "re-signed", topic, sealed(have.stranger, topic, body), draw(st.booleans()), one(RefusalReason.UNKNOWN_KEY)
    )


@st.composite
def forged(draw: Draw, have: Material) -> Lie:
    """Name the controller's key and sign with something else: random bytes, or a key of our own."""
    topic = draw(command_topics(have.me))
    body = json.dumps(_command(have, seq=draw(_seqs(have)))).encode()
    random = to_base64(draw(st.binary(min_size=64, max_size=64))).encode()
    line, _, _ = sealed(have.stranger, topic, body).partition(b"\n")
    signature = draw(st.sampled_from((random, line.split(b" ")[2])))
    payload = b"s1 %s %s\n%s" % (have.controller.kid.encode(), signature, body)
    return Lie("forged", topic, payload, draw(st.booleans()), one(RefusalReason.FORGED))


@st.composite
def redirected(draw: Draw, have: Material) -> Lie:
    """Publish what was sent to another box, or under another name, under a topic of this box."""
    was = draw(st.sampled_from([*have.down, *have.other_down, *have.up]))
    topic = draw(st.sampled_from(have.down)).topic if draw(st.booleans()) else draw(command_topics(have.me))
    assume(topic != was.topic)
    to_keys, from_keys = parse(topic).kind is TopicKind.KEYS, was.kind is TopicKind.KEYS
    assume(not (to_keys and from_keys))
    signed = RefusalReason.FORGED if was.kind.down else RefusalReason.UNKNOWN_KEY
    whys = one(RefusalReason.MALFORMED if to_keys or from_keys else signed)
    return Lie("redirected", topic, was.payload, draw(st.booleans()), whys)


@st.composite
def replayed(draw: Draw, have: Material) -> Lie:
    """Send once more what was really sent: it is known, of an older birth, or older than what is observed."""
    was = draw(st.sampled_from(have.down))
    whys = one(RefusalReason.OLD_REV) if was.kind is TopicKind.DESIRED else one()
    return Lie("replayed", was.topic, was.payload, retain=False, whys=whys)


@st.composite
def stale(draw: Draw, have: Material) -> Lie:
    """Sign with the controller's own key what must not be taken: other epochs, enrolments, revisions, far numbers."""
    topic, value, whys = draw(st.sampled_from((_old_command, _old_desired, _old_receipt)))(draw, have)
    payload = sealed(have.controller, topic, json.dumps(value).encode())
    return Lie("stale", topic, payload, draw(st.booleans()), whys)


def _old_command(draw: Draw, have: Material) -> tuple[str, dict[str, Any], frozenset[RefusalReason]]:
    topic = draw(command_topics(have.me))
    value = _command(have, seq=draw(_seqs(have)))
    match draw(st.sampled_from(("epoch", "enrolment", "newer", "far"))):
        case "epoch":  # answered with STALE_EPOCH, no refusal
            return topic, value | {"epoch": draw(_other_epochs(have))}, one()
        case "enrolment":  # answered with OLD_ENROLMENT
            return topic, value | {"enrolment": draw(st.integers(0, have.enrolment - 1))}, one()
        case "newer":
            return topic, value | {"enrolment": draw(_above(have.enrolment))}, one(RefusalReason.NEWER_ENROLMENT)
        case _:
            return topic, value | {"seq": draw(st.integers(_FAR, MAX_COUNT))}, one(RefusalReason.OUT_OF_WINDOW)


def _old_desired(draw: Draw, have: Material) -> tuple[str, dict[str, Any], frozenset[RefusalReason]]:
    was = draw(st.sampled_from(have.of(TopicKind.DESIRED)))
    value = was.value
    match draw(st.sampled_from(("rev", "enrolment", "newer", "other"))):
        case "rev":
            return was.topic, value | {"rev": draw(st.integers(0, have.rev - 1))}, one(RefusalReason.OLD_REV)
        case "enrolment":
            old = draw(st.integers(0, have.enrolment - 1))
            return was.topic, value | {"enrolment": old, "rev": MAX_COUNT}, one(RefusalReason.OLD_ENROLMENT)
        case "newer":
            newer = {"enrolment": draw(_above(have.enrolment)), "rev": MAX_COUNT}
            return was.topic, value | newer, one(RefusalReason.NEWER_ENROLMENT)
        case _:
            spec = {"sharing": {"rev": 1, "installed": False}, "x": draw(st.text(max_size=9))}
            return was.topic, value | {"rev": have.rev, "spec": spec}, one(RefusalReason.OTHER_SPEC)


def _old_receipt(draw: Draw, have: Material) -> tuple[str, dict[str, Any], frozenset[RefusalReason]]:
    was = draw(st.sampled_from(have.of(TopicKind.RECEIPT)))
    value = was.value | {"server_time": MAX_COUNT, "ask": ["status"]}
    if draw(st.booleans()):
        return (
            was.topic,
            value | {"enrolment": draw(st.integers(0, have.enrolment - 1))},
            one(RefusalReason.OLD_ENROLMENT),
        )
    return was.topic, value | {"enrolment": draw(_above(have.enrolment))}, one(RefusalReason.NEWER_ENROLMENT)


@st.composite
def misfit(draw: Draw, have: Material) -> Lie:
    """Sign with the controller's own key what is no message: wrong types, other versions, no JSON at all."""
    was = draw(st.sampled_from(have.signed))
    body = draw(misfits(was.body, was.kind))
    whys = one(RefusalReason.OVERSIZE) if len(body) > WIRE_MAX_BYTES - 256 else _NOT_READ
    return Lie("misfit", was.topic, sealed(have.controller, was.topic, body), draw(st.booleans()), whys)


@st.composite
def elsewhere(draw: Draw, have: Material) -> Lie:
    """Publish below what the box hears, under what is no topic."""
    topic = draw(other_topics(have.me))
    payload = draw(st.sampled_from(have.down)).payload if draw(st.booleans()) else draw(st.binary(max_size=99))
    return Lie("elsewhere", topic, payload, draw(st.booleans()), one(RefusalReason.UNKNOWN_TOPIC))


@st.composite
def noise(draw: Draw, have: Material) -> Lie:
    """Publish any bytes."""
    topic = draw(st.sampled_from(have.down)).topic
    start = draw(st.sampled_from((b"", b"s1 ", b"s0 ", b"s1 " + b"0" * 16 + b" " + b"A" * 86, b"{")))
    payload = start + draw(st.binary(max_size=200))
    return Lie("noise", topic, payload, draw(st.booleans()), one(RefusalReason.MALFORMED, RefusalReason.UNKNOWN_KEY))


@st.composite
def huge(draw: Draw, have: Material) -> Lie:
    """Publish what has more bytes than a message may have, as many as a broker lets through."""
    was: Heard = draw(st.sampled_from(have.down))
    length = draw(st.integers(WIRE_MAX_BYTES + 1, WIRE_MAX_BYTES + 1_024 - TOPIC_MAX_BYTES))
    filler: bytes = draw(st.sampled_from((b" ", b"[", b'{"a":', b"\xff", b"0"))) * length
    head = was.payload if draw(st.booleans()) else sealed(have.controller, was.topic, filler[: length - 200])
    payload = (head + filler)[:length]
    return Lie("huge", was.topic, payload, retain=False, whys=one(RefusalReason.OVERSIZE))  # a broker has so much room


@st.composite
def keys(draw: Draw, have: Material) -> Lie:
    """Publish key sets that the root has not signed, or that are not newer."""
    topic = f"edgegpu/v1/{have.me}/down/keys"
    newest: dict[str, Any] = json.loads(have.link.set)
    way = draw(st.sampled_from(("own", "version", "old", "text", "line")))
    if way == "line":
        line = draw(st.sampled_from((b"", b"s1\n", b"s0", b"S0\n")))
        return Lie("keys", topic, line + b"{}", draw(st.booleans()), one(RefusalReason.MALFORMED))
    text, whys = _set(draw, newest, have, way)
    link = {"set": text, "sig": to_base64(have.stranger.key.sign(b"edgegpu key set 1\n" + text.encode()))}
    body = json.dumps({"v": 1, "chain": [link]}).encode()
    return Lie("keys", topic, b"s0\n" + body, draw(st.booleans()), whys)


def _set(draw: Draw, newest: dict[str, Any], have: Material, way: str) -> tuple[str, frozenset[RefusalReason]]:
    stranger = to_base64(have.stranger.key.public_key().public_bytes_raw())
    value = newest | {"root": stranger, "keys": [{"public": stranger}]}
    match way:
        case "own":
            return json.dumps(value | {"version": newest["version"] + 1}), one(RefusalReason.FORGED)
        case "version":
            version = draw(st.integers(newest["version"] + 2, MAX_COUNT))
            return json.dumps(value | {"version": version}), one(RefusalReason.BROKEN_CHAIN)
        case "old":
            return json.dumps(value | {"version": draw(st.integers(1, newest["version"]))}), one(
                RefusalReason.OLD_KEY_SET
            )
        case _:
            return draw(st.text(max_size=60)), _NOT_READ


def _command(have: Material, *, seq: int) -> dict[str, Any]:
    """Return a command that would be done, were it signed by the controller."""
    return {"v": 1, "enrolment": have.enrolment, "epoch": have.epoch, "seq": seq, "floor": 0, "valid_s": 2**31}


def _seqs(have: Material) -> st.SearchStrategy[int]:
    """Return numbers that the box would take: unseen, and not too far above its floor."""
    return st.integers(have.seq + 1, have.seq + WINDOW // 2)


def _above(number: int) -> st.SearchStrategy[int]:
    return st.integers(number + 1, MAX_COUNT)


def _other_epochs(have: Material) -> st.SearchStrategy[dict[str, Any]]:
    nonces = st.from_regex(r"[0-9a-f]{16}", fullmatch=True).filter(lambda nonce: nonce != have.epoch["nonce"])
    made = st.fixed_dictionaries({"count": st.integers(0, have.epoch["count"]), "nonce": nonces})
    return made | st.sampled_from(have.older_epochs) if have.older_epochs else made


@st.composite
def claimed(draw: Draw, have: Material) -> Lie:
    """Tell the controller how a command has ended, with a signature that is not the box's."""
    was = draw(st.sampled_from([one for one in have.up if one.kind in {TopicKind.RESULT, TopicKind.RESULT_BY_ID}]))
    value = was.value | {"state": draw(st.sampled_from(("SUCCEEDED", "FAILED", "EXPIRED"))), "n": MAX_COUNT}
    body = json.dumps(value).encode()
    stranger = sealed(have.stranger, was.topic, body)
    kept = was.payload.partition(b"\n")[0] + b"\n" + body
    return Lie("claimed", was.topic, draw(st.sampled_from((stranger, kept))), draw(st.booleans()), one())


Way = Callable[[Material], st.SearchStrategy[Lie]]
WAYS: tuple[Way, ...] = (
    *(bent, swapped, resigned, forged, redirected, replayed, stale, misfit, elsewhere, noise, huge, keys),
)


UPWARD: tuple[Way, ...] = (bent, swapped, noise, huge, replayed, claimed)
"""To the controller; what it counts is not looked at here, only that they have no effect."""
