"""The topics: exactly those of docs/mqtt-api.md, and nothing that a part could smuggle in."""

import pytest

from edgegpu_sync.errors import MessageRefusedError, RefusalReason, SyncError
from edgegpu_sync.ids import command_id, device_id, op_name
from edgegpu_sync.topics import CommandTopic, PlainTopic, ResultTopic, TopicKind, box_filter, parse

BOX = device_id("k3f9x2m7q1w8e5r4")


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/down/desired", PlainTopic(BOX, TopicKind.DESIRED)),
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/down/receipt", PlainTopic(BOX, TopicKind.RECEIPT)),
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/down/keys", PlainTopic(BOX, TopicKind.KEYS)),
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/up/status", PlainTopic(BOX, TopicKind.STATUS)),
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/up/metrics", PlainTopic(BOX, TopicKind.METRICS)),
        (
            "edgegpu/v1/k3f9x2m7q1w8e5r4/down/cmd/k3s.restart/0190-abcd",
            CommandTopic(BOX, op_name("k3s.restart"), command_id("0190-abcd")),
        ),
        ("edgegpu/v1/k3f9x2m7q1w8e5r4/up/cmd/0190-abcd", ResultTopic(BOX, command_id("0190-abcd"))),
    ],
)
def test_a_topic_is_read_and_written(text: str, topic: PlainTopic | CommandTopic | ResultTopic) -> None:
    assert parse(text) == topic
    assert str(topic) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "edgegpu",
        "/edgegpu/v1/k3f9x2m7q1w8e5r4/up/status",
        "edgegpu/v2/k3f9x2m7q1w8e5r4/up/status",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/up/status/",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/up/status\n",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/status",
        "edgegpu/v1/+/up/status",
        "edgegpu/v1/K3F9X2M7Q1W8E5R4/up/status",
        "edgegpu/v1/k3f9x2m7q1w8e5r/up/status",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/up/#",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/up/cmd",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/cmd/k3s.restart",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/cmd/+/0190-abcd",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/cmd/k3s..restart/0190-abcd",
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/cmd/k3s.restart/0190/abcd",
    ],
)
def test_what_is_not_exactly_one_of_ours_is_refused(text: str) -> None:
    with pytest.raises(MessageRefusedError) as refused:
        parse(text)
    assert refused.value.why is RefusalReason.UNKNOWN_TOPIC


def test_a_box_subscribes_to_its_own_alone() -> None:
    assert box_filter(BOX) == "edgegpu/v1/k3f9x2m7q1w8e5r4/down/#"


def test_an_error_shows_no_more_than_the_beginning_of_what_was_sent() -> None:
    with pytest.raises(SyncError, match="no device id") as error:
        device_id("x" * 100_000)
    assert len(str(error.value)) < 200


def test_what_is_retained() -> None:
    assert {kind for kind in TopicKind if kind.retained} == {TopicKind.DESIRED, TopicKind.KEYS, TopicKind.STATUS}
    assert {kind for kind in TopicKind if kind.down} == {
        TopicKind.DESIRED,
        TopicKind.COMMAND,
        TopicKind.RECEIPT,
        TopicKind.KEYS,
    }
