"""The arguments in the audit: whoever chooses them, an entry stays small and says how much is left out."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from kits.details import box, saying

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.arguments import LEFT_OUT, MOST_BYTES, audited_args, without_secrets
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import EnrolledBox, Json
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id
from edgegpu_sync.topics import TopicKind

NOW_S, DEVICE = 1_790_000_000.0, device_id("0" * 16)
ROOM = MOST_BYTES + len(f', "{LEFT_OUT}": 1234567890')
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=300)
    | st.just("x" * 5_000)
    | st.just("\N{SNOWMAN}" * 999),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=200), inner, max_size=30),
    max_leaves=60,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3_000), VALUES, max_size=20))
def test_they_are_whole_or_bounded_and_counted(args: Json) -> None:
    kept = audited_args(args)
    whole = len(json.dumps(without_secrets(args)))
    if whole <= MOST_BYTES:
        assert kept == without_secrets(args)
        return
    assert len(json.dumps(kept)) <= ROOM
    left = kept.pop(LEFT_OUT)
    assert left == whole - len(json.dumps(kept))
    assert set(kept) <= set(args)


def test_the_small_ones_stay_whole_and_of_a_large_one_its_beginning() -> None:
    kept = audited_args({"big": "a" * 50_000, "op": "model.load", "list": list(range(9)), "wait_s": 5, LEFT_OUT: 0})
    assert (kept["op"], kept["list"], kept["wait_s"]) == ("model.load", list(range(9)), 5)
    assert kept["big"].startswith("aaa")
    assert kept["big"].endswith("a…")
    assert 48_000 < kept[LEFT_OUT] < 50_000, "what the sender says of it does not count"


def test_what_is_cut_has_no_secret() -> None:
    address = "https://anna:pw@logs.example.com/in?signature=SECRET"
    kept = audited_args({"urls": [address] * 200, "one": address})
    assert kept["one"] == "https://logs.example.com/in"
    assert "SECRET" not in json.dumps(kept)
    assert kept["urls"][0] == "https://logs.example.com/in"


def test_neither_a_box_with_its_own_ops_nor_a_token_fills_the_audit(store: ControllerStore) -> None:
    new = EnrolledBox(device=DEVICE, enrolment=1, public="A" * 43, instance="ab" * 32, name="odd")
    said = saying(box("odd"), TopicKind.STATUS, state="birth", capabilities=["model.load"])
    heard = {kind: replace(one, device=DEVICE) for kind, one in said.latest.items()}
    with store.write() as tx:
        add_box(tx, new, Author("setup", NOW_S))
        tx.boxes.add_latest(list(heard.values()))
        refresh(tx, tx.boxes.get([DEVICE]).values(), heard={DEVICE: heard})
    large: Json = {"prompt": "x" * 60_000, "deep": {"deeper": ["y" * 900] * 5}}
    fleet = Fleet(store, clock=lambda: NOW_S, by="anna")
    id_ = fleet.command("odd", "model.load", large)
    assert fleet.one_command(id_).args == large, "the box gets all of it"
    operations = Operations(store, clock=lambda: NOW_S, access=Access("anna"))
    pods = {"pods": [f"{number:036d}" for number in range(10)]}
    operations.start(OperationKind.COMMAND, {"op": "evidence.check", "args": pods}, where=BoxFilter())
    while OperationRunner(store, clock=lambda: NOW_S).step():
        pass
    with store.read() as tx:
        entries = [one.detail for one in tx.notes.audits(limit=10) if one.what in {"command", "operation"}]
    assert [len(json.dumps(one)) < 2 * MOST_BYTES for one in entries] == [True] * 3
    (odd,) = (one for one in fleet.audit() if (one.after or {}).get("op") == "model.load")
    assert odd.after is not None
    assert odd.after["args"][LEFT_OUT] > 60_000
