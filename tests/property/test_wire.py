"""What is written is read back, and whatever else arrives never raises anything but the reader's own error."""

import contextlib
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from property.cases import MODEL

from edgegpu_core.deviceid import DeviceId, DeviceKind, card_of, parse
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import CheckpointEntry, CheckpointError, Ledger, parse_checkpoint
from edgegpu_core.nodereport import NodeReport, read_report, write_report
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import CARDS_ANNOTATION, POLICY_ANNOTATION, pod_view, read_cards, write_cards

TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
CARDS = st.from_regex(r"GPU-[0-9a-f]{1,36}", fullmatch=True)


def spoilt(draw: st.DrawFn, value: Any) -> Any:  # noqa: ANN401  (JSON of any shape)
    """Replace one part of a JSON value, however deep, by anything."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    copy = value.copy()
    key: Any = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    copy[key] = spoilt(draw, value[key])
    return copy


@st.composite
def reports(draw: st.DrawFn) -> NodeReport:
    names = draw(st.lists(CARDS, min_size=1, max_size=4, unique=True))
    slots = tuple(CardCapacity(name, draw(TEXT), draw(st.integers(0, 999)), draw(st.booleans())) for name in names)
    shares = st.builds(Share, st.sampled_from(names), st.integers(0, 999), st.integers(0, 100))
    return NodeReport(
        boot=draw(TEXT),
        generation=draw(st.integers(0)),
        time=draw(TEXT),
        policy=draw(st.sampled_from(Policy)),
        unit_mib=draw(st.integers(1, 4096)),
        core_required=draw(st.booleans()),
        slots=slots,
        held=draw(st.dictionaries(TEXT, st.lists(shares, max_size=3).map(tuple), max_size=3)),
        waiting=draw(st.frozensets(TEXT, max_size=3)),
    )


@given(reports())
@settings(max_examples=50)
def test_reports_round_trip(report: NodeReport) -> None:
    assert read_report(write_report(report)) == report


@given(reports(), st.data())
@settings(max_examples=100)
def test_a_spoilt_report_is_none_or_sound(report: NodeReport, data: st.DataObject) -> None:
    raw = data.draw(st.composite(lambda draw: spoilt(draw, json.loads(write_report(report))))())
    found = read_report(json.dumps(raw))
    if found is not None:
        places = {slot.uuid for slot in found.slots}
        assert all(share.card in places for shares in found.held.values() for share in shares)
        assert read_report(write_report(found)) is not None


@given(st.text() | JSON.map(json.dumps))
@example("[" * 100_000)
@settings(max_examples=100)
def test_any_text_is_read_or_refused(text: str) -> None:
    read_report(text)
    read_cards(text, "u", "n")
    for some in (text, text.encode(errors="surrogatepass")):
        with contextlib.suppress(CheckpointError):
            parse_checkpoint(some)
    with contextlib.suppress(ValueError):
        parse(text)


@given(CARDS, st.sampled_from(DeviceKind), st.integers(0, 30_000))
@settings(max_examples=100)
def test_device_ids_round_trip(card: str, kind: DeviceKind, number: int) -> None:
    device = DeviceId(card, kind, number)
    assert parse(str(device)) == device
    assert card_of(str(device)) == card


@given(st.dictionaries(TEXT, st.lists(CARDS, max_size=3).map(tuple), max_size=3), TEXT, st.text(min_size=1, max_size=9))
@settings(max_examples=100)
def test_cards_round_trip(cards: dict[str, tuple[str, ...]], uid: str, node: str) -> None:
    text = write_cards(uid, node, cards)
    assert read_cards(text, uid, node) == cards
    assert read_cards(text, uid + "x", node) is None
    assert read_cards(text, uid, node + "x") is None


@given(st.data())
@settings(max_examples=100)
def test_a_spoilt_annotation_promises_lists_of_names_or_nothing(data: st.DataObject) -> None:
    value = {"v": 1, "uid": "u", "node": "n", "c": {"main": ["GPU-0", "GPU-1"], "init": ["GPU-0"]}}
    raw = data.draw(st.composite(lambda draw: spoilt(draw, value))())
    found = read_cards(json.dumps(raw), "u", "n")
    if found is not None:
        assert all(isinstance(card, str) for cards in found.values() for card in cards)
        assert all(isinstance(cards, tuple) for cards in found.values())


@given(TEXT, TEXT, TEXT, st.one_of(JSON, TEXT))
@settings(max_examples=100)
def test_a_pod_with_any_quantities_and_annotations_is_read(memory: str, core: str, policy: str, cards: object) -> None:
    limits = {MODEL.memory_resource: memory, MODEL.core_resource: core}
    annotations = {POLICY_ANNOTATION: policy, CARDS_ANNOTATION: json.dumps(cards)}
    pod = {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    view = pod_view(pod, MODEL)
    assert view is None or view.cards is None


ENTRY = st.builds(
    CheckpointEntry,
    st.sampled_from(["u", "v"]),
    TEXT,
    st.sampled_from([MODEL.memory_resource, MODEL.core_resource, "other.org/x"]),
    st.lists(CARDS.map(lambda card: f"{card}::m0001"), max_size=3).map(tuple),
)


@given(st.lists(ENTRY, max_size=5), st.data())
@settings(max_examples=100)
def test_a_checkpoint_is_read_as_it_was_written_or_refused(entries: list[CheckpointEntry], data: st.DataObject) -> None:
    by_map = data.draw(st.booleans())
    raw = {
        "Data": {
            "PodDeviceEntries": [
                {
                    "PodUID": entry.pod_uid,
                    "ContainerName": entry.container,
                    "ResourceName": entry.resource,
                    "DeviceIDs": {"-1": list(entry.device_ids)} if by_map else list(entry.device_ids),
                }
                for entry in entries
            ],
        },
    }
    assert list(parse_checkpoint(json.dumps(raw))) == entries
    broken = data.draw(st.composite(lambda draw: spoilt(draw, raw))())
    try:
        found = parse_checkpoint(json.dumps(broken))
    except CheckpointError:
        return
    Ledger.of_entries(found, MODEL).only(["u"]).held("u", ())
