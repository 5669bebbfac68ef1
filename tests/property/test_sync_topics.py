"""Topics: what is built is parsed back, and no text outside them is."""

from hypothesis import given, settings
from hypothesis import strategies as st
from property.sync_cases import topics

from edgegpu_sync.errors import MessageRefusedError, SyncError
from edgegpu_sync.ids import command_id, device_id, op_name
from edgegpu_sync.topics import Topic, parse


@given(topics)
@settings(max_examples=50)
def test_built_and_parsed_back(topic: Topic) -> None:
    assert parse(str(topic)) == topic
    assert not set("+#") & set(str(topic))


@given(topics, st.integers(0, 200), st.characters())
@settings(max_examples=100)
def test_a_changed_topic_is_another_or_none(topic: Topic, place: int, character: str) -> None:
    text = str(topic)
    place %= len(text)
    changed = text[:place] + character + text[place + 1 :]
    try:
        assert str(parse(changed)) == changed
    except MessageRefusedError:
        assert changed != text


@given(st.text(), st.sampled_from("+#/\0\n "), st.text())
@settings(max_examples=50)
def test_no_part_holds_what_has_a_meaning_in_topics(before: str, bad: str, after: str) -> None:
    for read in (device_id, op_name, command_id):
        try:
            read(before + bad + after)
        except SyncError:
            continue
        raise AssertionError(before + bad + after)
