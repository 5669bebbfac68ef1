"""Messages: whatever the bytes, a reader refuses or answers, and never fails otherwise."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from kits.sync import one_of_each

from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.messages.readers import Message, read
from edgegpu_sync.messages.spec import Spec, asked
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import digest, encode

EACH = st.sampled_from(one_of_each())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(TopicKind), st.binary(max_size=60))
@settings(max_examples=100)
def test_bytes(kind: TopicKind, body: bytes) -> None:
    try:
        read(kind, body)
    except MessageRefusedError:
        return
    raise AssertionError(body)


@given(EACH, st.data(), JSON)
@settings(max_examples=200)
def test_a_field_with_any_other_value(each: tuple[TopicKind, Message], data: st.DataObject, other: object) -> None:
    kind, message = each
    value = json.loads(encode(message))
    value[data.draw(st.sampled_from(sorted(value)))] = other
    try:
        again = read(kind, json.dumps(value).encode())
    except MessageRefusedError:
        return
    assert read(kind, encode(again)) == again


@given(
    st.fixed_dictionaries(
        {},
        optional={name: JSON | st.fixed_dictionaries({"rev": JSON, "critical": JSON}) for name in Spec.model_fields},
    )
)
@settings(max_examples=100)
def test_any_spec_is_read(document: dict[str, object]) -> None:
    body = json.dumps({"v": 1, "enrolment": 1, "rev": 2, "spec": document}).encode()
    try:
        spec = read(TopicKind.DESIRED, body).model_dump()["spec"]
    except MessageRefusedError:
        return
    for one in asked(spec, 2):
        assert (one.item is None) == bool(one.unsupported)
        assert len(one.unsupported) <= 200


@given(JSON)
@settings(max_examples=50)
def test_a_digest_is_that_of_the_value(value: object) -> None:
    text = json.dumps(value)
    assert digest(json.loads(text)) == digest(json.loads(text))
