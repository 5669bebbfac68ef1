"""A desired document is read item by item: what one version does not know harms no other item."""

import json
from typing import Any

from kits.sync import EPOCH, limits, spec

from edgegpu_sync.messages.spec import AppLimits, AskedItem, Sharing, Spec, TryKey, asked
from edgegpu_sync.messages.uplink import Reported, encode_reported
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.rules.settle import DesiredState
from edgegpu_sync.wire import MAX_COUNT, Json


def by_name(document: Json, rev: int = 12) -> dict[str, AskedItem]:
    return {one.name: one for one in asked(document, rev)}


def test_all_items_are_read_sharing_first() -> None:
    found = asked(spec().to_json(), 12)
    assert [one.name for one in found] == [
        "sharing",
        "isolation",
        "app_limits/default/asr/main",
        "app_limits/default/ocr/main",
    ]
    assert found[0].item == Sharing(rev=3, installed=True)
    assert found[2].item == limits()
    assert not any(one.unsupported for one in found)


def test_a_spec_is_written_without_what_nobody_has_set() -> None:
    assert Spec(sharing=Sharing(rev=3, installed=True)).to_json() == {"sharing": {"rev": 3, "installed": True}}


def test_what_is_left_out_is_not_asked() -> None:
    assert asked({}, 1) == ()
    assert asked({"sharing": None, "app_limits": []}, 1) == ()


def test_an_unknown_field_is_passed_over_unless_it_is_critical() -> None:
    value: Json = {"rev": 3, "installed": True, "channel": "beta"}
    assert by_name({"sharing": value})["sharing"].item == Sharing(rev=3, installed=True)
    one = by_name({"sharing": {**value, "critical": ["channel", "installed"]}})["sharing"]
    assert one.item is None
    assert one.unsupported == "this agent does not know channel"


def test_an_unknown_item_is_passed_over_unless_it_is_critical() -> None:
    assert asked({"mig": {"rev": 1}}, 5) == ()
    (one,) = asked({"mig": {"rev": 1}, "critical": ["mig", "sharing"]}, 5)
    assert (one.name, one.item, one.key.rev) == ("mig", None, 5)


def test_a_value_of_a_newer_version_harms_its_own_item_alone() -> None:
    found = by_name({"isolation": {"rev": 2, "mode": "vgpu"}, "sharing": {"rev": 1, "installed": False}})
    assert found["isolation"].item is None
    assert "mode" in found["isolation"].unsupported
    assert found["sharing"].item == Sharing(rev=1, installed=False)


def test_malformed_items_are_unsupported_not_fatal() -> None:
    found = by_name({"sharing": 7, "app_limits": {"not": "a list"}, "policy": [], "critical": "mps"})
    assert {name: one.item for name, one in found.items()} == dict.fromkeys(
        ["sharing", "policy", "app_limits/#0", "mps"]
    )


def test_one_app_twice_is_neither() -> None:
    twice: Json = {"app_limits": [limits(units=4).model_dump(mode="json"), limits(units=5).model_dump(mode="json")]}
    assert [one.unsupported for one in asked(twice, 1)] == ["it stands there twice"] * 2


def test_what_is_tried_once_is_named_by_revision_content_and_nonce() -> None:
    def key(one: AppLimits) -> TryKey:
        return asked({"app_limits": [one.model_dump(mode="json")]}, 12)[0].key

    assert key(limits()) == key(limits())
    assert len({key(limits()), key(limits(rev=8)), key(limits(units=11)), key(limits(retry=1))}) == 4
    assert (key(limits(retry=3)).rev, key(limits(retry=3)).retry) == (7, 3)


def reported(document: Json) -> bytes:
    """Return how a box would report a document of which it has tried nothing."""
    desired_state = DesiredState().observe(SeenRevision(MAX_COUNT, "0" * 16), asked(document, MAX_COUNT))
    items = desired_state.report()
    return encode_reported(
        Reported(enrolment=3, epoch=EPOCH, n=5, observed_rev=12, applied_rev=0, seq=1, floor=0, items=items)
    )


def test_what_is_over_the_number_of_apps_is_one_item_and_the_answer_fits() -> None:
    document: dict[str, Any] = {"app_limits": [limits(f"app{at}").model_dump(mode="json") for at in range(130)]}
    found = by_name(document)
    assert len(found) == 101
    assert found["app_limits/default/app99/main"].item is not None
    assert found["app_limits/#100"].unsupported == "a document has at most 100 apps, here are 30 more"
    assert reported({"app_limits": [0] * 20_000})
    assert reported({"critical": [f"{place:x}" for place in range(7_000)]})


def test_the_longest_document_can_be_reported() -> None:
    apps = [
        {**limits().model_dump(mode="json"), "namespace": f"{place:063}", "app": "a" * 253, "container": "c" * 63}
        for place in range(100)
    ]
    critical = [f"{place:064}" for place in range(40)]
    document = json.loads(json.dumps({"app_limits": apps, "critical": critical}))
    found = by_name(document)
    assert len(found) == 133
    assert max(map(len, found)) == 392
    assert reported(document)


def test_names_that_are_too_long_together_are_unsupported() -> None:
    value: Json = {**limits().model_dump(mode="json"), "namespace": "n" * 200, "app": "a" * 200}
    one = by_name({"app_limits": [value]})["app_limits/#0"]
    assert (one.item, one.unsupported) == (None, "its names are too long together")
