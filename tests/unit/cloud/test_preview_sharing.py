"""What would come of other settings: by the box's last report, in words that name the pods."""

from dataclasses import replace
from typing import Any

import pytest
from kits.details import view
from kits.telemetry import CLUSTER

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.preview.sharing import (
    ItemPreview,
    PreviewVerdict,
    check_settings,
    preview_named,
    preview_settings,
)
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.records import Latest
from edgegpu_sync.ids import device_id
from edgegpu_sync.messages.spec import AnyItem, Exclusions, Isolation, IsolationMode, PolicyItem, Spec, UnitSize
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.topics import TopicKind

Json = dict[str, Any]
DEVICE = device_id("k3f9x2m7q1w8e5r4")
STAMP = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=1)


WILL = {"state": "will"}


def birth(*capabilities: str) -> Json:
    return {"state": "birth", "capabilities": list(capabilities)}


def details(
    *, sharing: bool = True, held: bool = True, told: bool = True, status: Json | None = None, units: int = 60
) -> BoxDetails:
    head = {"enrolment": 1, "epoch": {"count": 1, "nonce": "0" * 16}, "n": 1, "age_s": 0}
    cards = [
        {"uuid": f"GPU-{at}", "label": str(at), "name": "T4", "memory_mib": 15_360, "units": units, "healthy": True}
        for at in range(2)
    ]
    cards.append({**cards[0], "uuid": "GPU-2", "label": "2", "excluded": True})
    plain = {"node": "box-1", "role": "server", "sharing": sharing, "unit_mib": 256, "mode": "none"}
    inventory = {**head, **plain, "policy": "first-fit", "cards": cards, "cluster": CLUSTER.uid}
    pieces = [{"container": "main", "card": "GPU-0", "memory_units": 4, "core": 1}]
    pod = {"namespace": "default", "name": "asr-0", "phase": "Running", "pieces": pieces}
    bodies = {TopicKind.INVENTORY: inventory, TopicKind.ALLOC: {**head, "pods": {"u1": pod} if held else {}}}
    bodies |= {} if status is None else {TopicKind.STATUS: {**head, **status}}
    latest = {kind: Latest(device=DEVICE, kind=kind, stamp=STAMP, at_s=1.0, body=body) for kind, body in bodies.items()}
    box = replace(view("asr-hall"), device=DEVICE, seen_at_s=1.0, enrolled_at_s=1.0, cluster="")
    return BoxDetails(box=box, spec=Spec(), latest=latest if told else {}, orphans=())


def of(item: AnyItem, box: BoxDetails) -> ItemPreview:
    return preview_settings(box, {"it": item})["it"]


@pytest.mark.parametrize(
    ("item", "answer", "says"),
    [
        (PolicyItem(rev=0, policy="first-fit"), PreviewVerdict.AS_IT_IS, ""),
        (PolicyItem(rev=0, policy="spread"), PreviewVerdict.CHANGED, "new pods alone"),
        (Exclusions(rev=0, cards=("2",)), PreviewVerdict.AS_IT_IS, ""),
        (Exclusions(rev=0, cards=("GPU-2",)), PreviewVerdict.AS_IT_IS, ""),
        (Exclusions(rev=0, cards=()), PreviewVerdict.CHANGED, ""),
        (Exclusions(rev=0, cards=("0", "2")), PreviewVerdict.CHANGED, "do not start there again: default/asr-0"),
        (Exclusions(rev=0, cards=("1", "7")), PreviewVerdict.CHANGED, "no card that it has told of: 7"),
        (UnitSize(rev=0, mib=256), PreviewVerdict.AS_IT_IS, ""),
        (UnitSize(rev=0, mib=512), PreviewVerdict.REJECTED, "stop them: default/asr-0"),
        (Isolation(rev=0, mode=IsolationMode.NONE), PreviewVerdict.AS_IT_IS, ""),
        (Isolation(rev=0, mode=IsolationMode.LIMITER), PreviewVerdict.CHANGED, "new pods alone"),
        (Isolation(rev=0, mode=IsolationMode.MPS), PreviewVerdict.CHANGED, "new pods alone"),
    ],
    ids=str,
)
def test_each_setting_is_foreseen(item: AnyItem, answer: PreviewVerdict, says: str) -> None:
    found = of(item, details())
    assert found.answer is answer
    assert found.text == says == "" or (says and says in found.text)


def test_a_card_that_is_not_there_is_rejected_in_the_preview_as_in_the_request() -> None:
    settings = SharingSettings(exclude=("2", "9"))
    found = preview_named(details(), settings)["exclusions"]
    assert (found.answer, "there is no such card" in found.text) == (PreviewVerdict.REJECTED, True)
    with pytest.raises(CloudError, match="cannot exclude 9 on asr-hall: there is no such card"):
        check_settings(details(), settings)
    before = replace(details(), spec=Spec(exclusions=Exclusions(rev=0, cards=("9",))))
    assert preview_named(before, settings)["exclusions"].answer is PreviewVerdict.AS_IT_IS, "it was excluded before"


def test_another_unit_fits_where_nobody_holds_shares_and_the_node_stays_small() -> None:
    assert of(UnitSize(rev=0, mib=512), details(held=False)) == ItemPreview(PreviewVerdict.CHANGED, "60 units in all")
    assert of(UnitSize(rev=0, mib=512), details(held=False, units=58)) == ItemPreview(
        PreviewVerdict.CHANGED,
        "58 units in all at most",  # a box that keeps something back of each card
    )
    assert of(UnitSize(rev=0, mib=1), details(held=False)).answer is PreviewVerdict.REJECTED


def test_without_sharing_nothing_can_be_set() -> None:
    assert of(PolicyItem(rev=0, policy="spread"), details(sharing=False)).answer is PreviewVerdict.REJECTED


@pytest.mark.parametrize("mode", [IsolationMode.LIMITER, IsolationMode.MPS])
def test_an_older_agent_does_not_take_an_isolation(mode: IsolationMode) -> None:
    item, settings = Isolation(rev=0, mode=mode), SharingSettings(isolation=mode.value)
    able, older = birth("isolation.limiter", "isolation.mps"), birth("app_limits")
    before = [older] if mode is IsolationMode.LIMITER else [older, birth("isolation.limiter")]
    for status in (able, WILL):
        assert of(item, details(status=status)).answer is PreviewVerdict.CHANGED
        check_settings(details(status=status), settings)
    for status in before:
        assert of(item, details(status=status)).answer is PreviewVerdict.UNSUPPORTED
        with pytest.raises(CloudError, match=f"cannot set isolation {mode} on asr-hall: its agent is older"):
            check_settings(details(status=status), settings)


def test_a_box_that_has_told_nothing_cannot_be_foreseen() -> None:
    with pytest.raises(CloudError, match="has not told yet what cards"):
        of(PolicyItem(rev=0, policy="spread"), details(told=False))
