"""The messages: versions, sizes, what a newer side may add, and what is cut so that an answer always fits."""

import json

import pytest
from kits.sync import birth, one_of_each, reported, result
from pydantic import ValidationError

from edgegpu_sync.errors import MessageRefusedError, RefusalReason, TooLargeError
from edgegpu_sync.messages.downlink import Command
from edgegpu_sync.messages.readers import READERS, Message, read
from edgegpu_sync.messages.spec import MAX_APP_LIMITS
from edgegpu_sync.messages.telemetry import Alloc, PodAlloc, difference, merged
from edgegpu_sync.messages.uplink import CommandResult, encode_reported, encode_result
from edgegpu_sync.states import FOLLOWERS, CommandState
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import BODY_MAX_BYTES, RESULT_MAX_BYTES, clipped, digest, encode

EACH = one_of_each()
NAMES = [type(message).__name__ for _, message in EACH]


def why(kind: TopicKind, body: bytes) -> RefusalReason:
    with pytest.raises(MessageRefusedError) as refused:
        read(kind, body)
    return refused.value.why


def test_every_kind_has_a_reader_and_an_example() -> None:
    assert set(READERS) == set(TopicKind) == {kind for kind, _ in EACH}


@pytest.mark.parametrize(("kind", "message"), EACH, ids=NAMES)
def test_what_is_written_is_read(kind: TopicKind, message: Message) -> None:
    body = encode(message)
    assert read(kind, body) == message
    assert b"null" not in body


@pytest.mark.parametrize(("kind", "message"), EACH, ids=NAMES)
def test_fields_of_a_newer_side_are_passed_over(kind: TopicKind, message: Message) -> None:
    value = json.loads(encode(message))
    assert read(kind, json.dumps({**value, "later": {"x": [1]}}).encode()) == message


@pytest.mark.parametrize(("kind", "message"), EACH, ids=NAMES)
def test_another_version_is_said_to_be_one(kind: TopicKind, message: Message) -> None:
    value = json.loads(encode(message))
    assert why(kind, json.dumps({**value, "v": 2}).encode()) is RefusalReason.UNKNOWN_VERSION


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"{}\n{}", b'{"v":1}', b"\xff\xfe", b'{"v":1,"rev":"7"}', b"[" * 5_000],
)
@pytest.mark.parametrize("kind", TopicKind)
def test_what_is_no_message_is_malformed(kind: TopicKind, body: bytes) -> None:
    assert why(kind, body) is RefusalReason.MALFORMED


def test_types_are_not_guessed() -> None:
    value = json.loads(encode(EACH[1][1]))
    for wrong in ("118", 118.5, True, None, -1, 2**53, float("nan")):
        assert why(TopicKind.COMMAND, json.dumps({**value, "seq": wrong}).encode()) is RefusalReason.MALFORMED


def test_the_floor_of_a_command_is_below_it() -> None:
    value = json.loads(encode(EACH[1][1]))
    with pytest.raises(ValidationError, match="floor is not below seq"):
        Command.model_validate_json(json.dumps({**value, "floor": 118}))


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 5_000])
def test_what_is_no_number_of_json_is_refused_wherever_it_stands(number: str) -> None:
    assert (
        why(TopicKind.DESIRED, f'{{"v":1,"enrolment":1,"rev":2,"spec":{{"a":[{number}]}}}}'.encode())
        is RefusalReason.MALFORMED
    )


def test_a_body_that_is_too_large_is_refused_by_both_sides() -> None:
    large = birth().model_copy(update={"capabilities": ("x" * 60,) * 2_000})
    with pytest.raises(TooLargeError, match="the limit is"):
        encode(large)
    assert why(TopicKind.STATUS, b" " * (BODY_MAX_BYTES + 1)) is RefusalReason.OVERSIZE
    assert why(TopicKind.RESULT, b" " * (RESULT_MAX_BYTES + 1)) is RefusalReason.OVERSIZE


def test_a_result_is_cut_to_its_place_in_the_outbox_and_keeps_its_state() -> None:
    long = result().model_copy(update={"text": "\N{WHITE SMILING FACE}" * 1_000, "data": {"log": "x" * 9_000}})
    body = encode_result(long)
    assert len(body) <= RESULT_MAX_BYTES
    cut = read(TopicKind.RESULT, body)
    assert isinstance(cut, CommandResult)
    assert cut.state is CommandState.SUCCEEDED
    assert cut.data is not None
    assert "dropped" in cut.data


def test_a_short_result_is_sent_as_it_is() -> None:
    assert read(TopicKind.RESULT, encode_result(result())) == result()


def test_a_reported_state_gives_up_its_numbers_before_its_words() -> None:
    assert read(TopicKind.REPORTED, encode_reported(reported(2))) == reported(2)
    lean = read(TopicKind.REPORTED, encode_reported(reported(MAX_APP_LIMITS, "x" * 300)))
    assert lean != reported(MAX_APP_LIMITS, "x" * 300)
    bare = read(TopicKind.REPORTED, encode_reported(reported(MAX_APP_LIMITS, "x" * 1_000)))
    for message, text in ((lean, "x" * 300), (bare, None)):
        assert message.model_dump()["items"]["app_limits/default/app-0/main"]["text"] == text
        assert message.model_dump()["items"]["app_limits/default/app-0/main"]["numbers"] is None


def test_the_longest_names_still_fit_an_answer() -> None:
    one = reported(1).items["app_limits/default/app-0/main"]
    items = {f"app_limits/{'n' * 63}/{'a' * 250}{number:03}/{'c' * 63}": one for number in range(MAX_APP_LIMITS)}
    assert encode_reported(reported().model_copy(update={"items": items}))


def test_any_text_can_be_made_fit_to_send() -> None:
    assert clipped("a\x00b\x1bc\r\nd\udc80") == "a?b?c\nd?"
    assert clipped("x" * 2_000) == "x" * 999 + "…"
    said = result().model_copy(update={"text": clipped("\x07" * 5_000)})
    assert read(TopicKind.RESULT, encode_result(said)) == said


def test_order_of_keys_does_not_make_another_item() -> None:
    assert digest({"a": 1, "b": [1, {"c": None}]}) == digest({"b": [1, {"c": None}], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})
    assert len(digest({})) == 16


def test_allocations_go_up_as_what_changed() -> None:
    pods = {uid: PodAlloc(namespace="a", name=uid, phase="Running", pieces=()) for uid in ("p1", "p2", "p3")}
    now = {"p1": pods["p1"], "p2": pods["p2"].model_copy(update={"phase": "Failed"})}
    changed, gone = difference(pods, now)
    assert (list(changed), gone) == (["p2"], ("p3",))
    up = {**birth().model_dump(include={"enrolment", "n"}), "epoch": birth().epoch}
    assert merged(pods, Alloc(pods=changed, gone=gone, base=1, **up)) == now
    assert merged({"old": pods["p1"]}, Alloc(pods=now, **up)) == now


def test_states_lead_to_an_end_and_ends_nowhere() -> None:
    assert {state for state in CommandState if state.terminal} == {
        CommandState.SUCCEEDED,
        CommandState.FAILED,
        CommandState.ROLLED_BACK,
        CommandState.REJECTED,
        CommandState.EXPIRED,
        CommandState.UNKNOWN,
    }
    reached = {CommandState.RECEIVED}
    for state in CommandState:
        reached |= FOLLOWERS[state]
    assert reached == set(CommandState)
