"""Signatures: what a broker can redirect, change, replay as another kind or present under an old key set is refused."""

from collections.abc import Callable
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.sync import BOX, ID, OTHER, RESTART

from edgegpu_sync.errors import MessageRefusedError, RefusalReason, TooLargeError
from edgegpu_sync.ids import command_id, op_name
from edgegpu_sync.keys import KeyRing, next_link, public_text
from edgegpu_sync.signing import Signer, bare, open_down, open_up
from edgegpu_sync.topics import CommandTopic, PlainTopic, ResultTopic, TopicKind
from edgegpu_sync.wire import BODY_MAX_BYTES, WIRE_MAX_BYTES


def key(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


ROOT, CONTROLLER, BOX_KEY, STRANGER = key(1), Signer.of(key(2)), key(3), Signer.of(key(4))
FIRST = next_link(ROOT, keys=[public_text(CONTROLLER.key)])
RING = KeyRing.pinned(public_text(ROOT)).follow([FIRST])
TOPIC = CommandTopic(BOX, RESTART, ID)
BODY = b'{"v":1}'


def why(call: Callable[[], object]) -> RefusalReason:
    with pytest.raises(MessageRefusedError) as refused:
        call()
    return refused.value.why


def test_a_command_is_opened_by_its_box() -> None:
    payload = CONTROLLER.seal(TOPIC, BODY)
    assert open_down(TOPIC, payload, me=BOX, ring=RING) == BODY
    assert payload.endswith(b"\n" + BODY)


@pytest.mark.parametrize(
    "topic",
    [
        CommandTopic(BOX, op_name("sharing.uninstall"), ID),
        CommandTopic(BOX, RESTART, command_id("another-id")),
        PlainTopic(BOX, TopicKind.DESIRED),
    ],
)
def test_a_message_under_another_topic_is_forged(topic: CommandTopic | PlainTopic) -> None:
    payload = CONTROLLER.seal(TOPIC, BODY)
    assert why(lambda: open_down(topic, payload, me=BOX, ring=RING)) is RefusalReason.FORGED


def test_another_boxs_message_is_refused_under_its_topic_and_under_ours() -> None:
    theirs = CommandTopic(OTHER, RESTART, ID)
    payload = CONTROLLER.seal(theirs, BODY)
    assert why(lambda: open_down(theirs, payload, me=BOX, ring=RING)) is RefusalReason.WRONG_DEVICE
    assert why(lambda: open_down(TOPIC, payload, me=BOX, ring=RING)) is RefusalReason.FORGED


def test_who_is_not_in_the_key_set_commands_nothing() -> None:
    payload = STRANGER.seal(TOPIC, BODY)
    assert why(lambda: open_down(TOPIC, payload, me=BOX, ring=RING)) is RefusalReason.UNKNOWN_KEY
    renamed = payload.replace(STRANGER.kid.encode(), CONTROLLER.kid.encode())
    assert why(lambda: open_down(TOPIC, renamed, me=BOX, ring=RING)) is RefusalReason.FORGED


def test_a_broker_cannot_turn_an_uplink_into_a_command() -> None:
    result = ResultTopic(BOX, ID)
    assert (
        why(lambda: open_down(result, CONTROLLER.seal(result, BODY), me=BOX, ring=RING)) is RefusalReason.UNKNOWN_TOPIC
    )
    assert why(lambda: open_up(TOPIC, Signer.of(BOX_KEY).seal(TOPIC, BODY), public="")) is RefusalReason.UNKNOWN_TOPIC


@pytest.mark.parametrize("payload", [b"", BODY, b"s1 \n", b"s2 " + b"0" * 16 + b" " + b"A" * 86 + b"\n" + BODY])
def test_a_payload_without_a_signature_line_is_malformed(payload: bytes) -> None:
    assert why(lambda: open_down(TOPIC, payload, me=BOX, ring=RING)) is RefusalReason.MALFORMED


def test_a_signature_has_one_text() -> None:
    payload = CONTROLLER.seal(TOPIC, BODY)
    line, _, body = payload.partition(b"\n")
    last = line[-1:]
    other = next(c for c in (b"B", b"R", b"h", b"x") if c != last)
    assert why(lambda: open_down(TOPIC, line[:-1] + other + b"\n" + body, me=BOX, ring=RING)) in {
        RefusalReason.MALFORMED,
        RefusalReason.FORGED,
    }


def test_the_largest_body_fits_and_a_larger_payload_is_refused_on_both_sides() -> None:
    payload = CONTROLLER.seal(TOPIC, b" " * BODY_MAX_BYTES)
    assert len(payload) <= WIRE_MAX_BYTES
    with pytest.raises(TooLargeError):
        CONTROLLER.seal(TOPIC, b" " * WIRE_MAX_BYTES)
    assert why(lambda: open_down(TOPIC, b" " * (WIRE_MAX_BYTES + 1), me=BOX, ring=RING)) is RefusalReason.OVERSIZE


def test_a_result_is_that_of_the_box_whose_key_is_known() -> None:
    topic, box = ResultTopic(BOX, ID), Signer.of(BOX_KEY)
    payload = box.seal(topic, BODY)
    assert open_up(topic, payload, public=public_text(BOX_KEY)) == BODY
    assert why(lambda: open_up(topic, payload, public=public_text(STRANGER.key))) is RefusalReason.UNKNOWN_KEY
    forged = ResultTopic(BOX, command_id("another-id"))
    assert why(lambda: open_up(forged, payload, public=public_text(BOX_KEY))) is RefusalReason.FORGED


def test_keys_come_under_the_roots_signature_alone() -> None:
    topic = PlainTopic(BOX, TopicKind.KEYS)
    assert open_down(topic, bare(BODY), me=BOX, ring=KeyRing.pinned("")) == BODY
    assert why(lambda: open_down(topic, CONTROLLER.seal(topic, BODY), me=BOX, ring=RING)) is RefusalReason.MALFORMED
    assert why(lambda: open_down(TOPIC, bare(BODY), me=BOX, ring=RING)) is RefusalReason.MALFORMED


def test_a_box_that_was_away_follows_the_chain_to_a_new_root() -> None:
    new_root, late = key(5), Signer.of(key(6))
    second = next_link(ROOT, keys=[public_text(STRANGER.key)], before=FIRST, next_root=public_text(new_root))
    third = next_link(new_root, keys=[public_text(late.key)], before=second)
    ring = RING.follow([FIRST, second, third])
    assert (ring.version, ring.root) == (3, public_text(new_root))
    assert open_down(TOPIC, late.seal(TOPIC, BODY), me=BOX, ring=ring) == BODY
    for gone in (CONTROLLER, STRANGER):
        assert why(partial(open_down, TOPIC, gone.seal(TOPIC, BODY), me=BOX, ring=ring)) is RefusalReason.UNKNOWN_KEY


def test_a_key_set_never_goes_back() -> None:
    second = next_link(ROOT, keys=[public_text(STRANGER.key)], before=FIRST)
    ring = RING.follow([second])
    for chain in ([FIRST], [second], [FIRST, second]):
        assert why(partial(ring.follow, chain)) is RefusalReason.OLD_KEY_SET


def test_a_chain_with_a_gap_or_another_past_is_broken() -> None:
    second = next_link(ROOT, keys=[public_text(STRANGER.key)], before=FIRST)
    third = next_link(ROOT, keys=[public_text(STRANGER.key)], before=second)
    assert why(lambda: RING.follow([third])) is RefusalReason.BROKEN_CHAIN
    other_first = next_link(ROOT, keys=[public_text(STRANGER.key)])
    other_second = next_link(ROOT, keys=[public_text(STRANGER.key)], before=other_first)
    assert why(lambda: RING.follow([other_second])) is RefusalReason.BROKEN_CHAIN


def test_only_the_root_in_effect_signs_key_sets() -> None:
    forged = next_link(STRANGER.key, keys=[public_text(STRANGER.key)], before=FIRST)
    assert why(lambda: RING.follow([forged])) is RefusalReason.FORGED
    second = next_link(ROOT, keys=[public_text(CONTROLLER.key)], before=FIRST, next_root=public_text(key(5)))
    by_old_root = next_link(ROOT, keys=[public_text(STRANGER.key)], before=second)
    assert why(lambda: RING.follow([second, by_old_root])) is RefusalReason.FORGED
    assert why(lambda: KeyRing.pinned("no key").follow([FIRST])) is RefusalReason.FORGED


def test_an_enrolment_may_begin_at_any_version() -> None:
    second = next_link(ROOT, keys=[public_text(CONTROLLER.key)], before=FIRST)
    assert KeyRing.pinned(public_text(ROOT)).follow([second]).version == 2
