"""kubelet's device checkpoint in both formats, and what is none."""

import json

import pytest

from edgegpu_core.ledger import CheckpointEntry, CheckpointError, parse_checkpoint


def text_of(ids: object, **more: object) -> str:
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": ids, "AllocResp": "QQ==", **more}
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1})


def test_the_list_of_kubernetes_1_19_and_before() -> None:
    assert parse_checkpoint(text_of(["A::m0001", "A::m0002"])) == (
        CheckpointEntry("u", "c", "r", ("A::m0001", "A::m0002")),
    )


def test_the_map_by_numa_node_since_then() -> None:
    text = text_of({"-1": ["A::m0001"], "0": ["A::m0002", "A::m0003"], "1": None})
    assert parse_checkpoint(text) == (CheckpointEntry("u", "c", "r", ("A::m0001", "A::m0002", "A::m0003")),)
    assert parse_checkpoint(text.encode()) == parse_checkpoint(text)


@pytest.mark.parametrize("text", ['{"Data":{"PodDeviceEntries":null}}', '{"Data":{"PodDeviceEntries":[]}}'])
def test_no_entries(text: str) -> None:
    assert parse_checkpoint(text) == ()


def test_an_entry_without_ids() -> None:
    assert parse_checkpoint(text_of(None)) == (CheckpointEntry("u", "c", "r", ()),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        "[]",
        "{}",
        '{"Data":null}',
        '{"Data":{}}',
        '{"Data":{"PodDeviceEntries":7}}',
        '{"Data":{"PodDeviceEntries":"abc"}}',
        '{"Data":{"PodDeviceEntries":{"a":1}}}',
        '{"Data":{"PodDeviceEntries":[null]}}',
        '{"Data":{"PodDeviceEntries":[{}]}}',
        text_of("A::m0001"),
        text_of(7),
        text_of([7]),
        text_of({"0": "A::m0001"}),
        text_of({"0": [["A::m0001"]]}),
        text_of(["A::m0001"], PodUID=["u"]),
        text_of(["A::m0001"], ContainerName=None),
        text_of(["A::m0001"], ResourceName={}),
        "[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_checkpoint_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(CheckpointError, match="cannot read kubelet's device checkpoint: "):
        parse_checkpoint(text)
