"""App limits when calls are lost, the agent dies, and others write the same fields."""

from collections.abc import Iterator
from typing import Any

import pytest
from kits.limitsapi import Api, Fault, path_of
from kits.limitsbed import RECREATE, Bed, Paper, field, thief
from kits.limitscases import manifest

from edgegpu_agent.ports import ActionStopped
from edgegpu_sync.messages.spec import OnDrift
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.settle import Settlement


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


@pytest.mark.parametrize("status", [409, 503])
@pytest.mark.parametrize("after", [False, True])
def test_a_conflict_and_a_lost_answer_are_gone_over(api: Api, status: int, *, after: bool) -> None:
    bed = field(api)
    api.faults.append(Fault("/asr", status, after=after))
    assert bed.settle(3) == Settlement.applied()
    assert len([write for write in api.writes if write.path.endswith("/asr")]) == 1
    assert bed.world.running("asr") == [3]


@pytest.mark.parametrize(("status", "words"), [(403, "may not change apps in namespace default"), (422, "fault 422")])
def test_a_patch_that_is_refused_changes_nothing(api: Api, status: int, words: str) -> None:
    bed = field(api)
    api.faults.append(Fault("/asr", status))
    came = bed.settle(3)
    assert (came.state, came.code) == (ItemState.REJECTED, "ERROR")
    assert words in came.text
    assert bed.world.running("asr") == [1]


@pytest.mark.parametrize("cut", range(8))
@pytest.mark.parametrize("fits", [True, False])
def test_a_crash_anywhere_is_gone_on_from(api: Api, cut: int, *, fits: bool) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=5, **RECREATE))
    if not fits:
        bed.world.at[bed.world.steps + 1] = lambda: bed.world.held.update(thief())
    bed.stop_after = cut * 2
    try:
        came = bed.settle(20)
    except ActionStopped:
        bed.stop_after = None
        bed.settler = bed.make()
        came = bed.settle(20)
    assert came.state is (ItemState.APPLIED if fits else ItemState.FAILED)
    assert bed.world.running("asr") == [20 if fits else 5]
    assert len(api.writes) == (1 if fits else 2), "done once"


def test_a_crash_in_an_interruption_puts_the_strategy_back(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=10))
    bed.stop_after = 0
    with pytest.raises(ActionStopped):
        bed.settle(20, interrupt=True)
    item = bed.world.workload("Deployment", "asr")
    assert item["spec"]["strategy"]["type"] == "Recreate"
    bed.stop_after = None
    bed.settler = bed.make()
    sight = bed.settler.look(bed.ask(20), Settlement.failed("ATTEMPTS", "", restored=False), bed.notes)
    assert sight.conditions == ()
    assert bed.world.workload("Deployment", "asr")["spec"]["strategy"] == {"type": "RollingUpdate"}


def test_a_crash_in_an_interruption_that_nobody_asks_for_any_more_puts_the_app_back(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=10))
    bed.stop_after = 0
    with pytest.raises(ActionStopped):
        bed.settle(20, interrupt=True)
    bed.stop_after = None
    bed.settler = bed.make()
    assert bed.world.workload("Deployment", "asr")["spec"]["strategy"]["type"] == "Recreate"
    bed.settler.abandon(bed.ask(20), bed.notes)
    assert bed.world.workload("Deployment", "asr")["spec"]["strategy"] == {"type": "RollingUpdate"}
    writes = len(api.writes)
    bed.settler.abandon(bed.ask(20), bed.notes)
    assert len(api.writes) == writes


def write_back(bed: Bed, memory: str) -> None:
    """Do as a console does that applies its whole Deployment again."""
    item = bed.world.workload("Deployment", "asr")
    limits = item["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["baidu.com/vcuda-memory"] = memory
    fields: dict[str, Any] = {"f:limits": {"f:baidu.com/vcuda-memory": {}}}
    at = {"f:containers": {'k:{"name":"main"}': {"f:resources": fields}}}
    tree: dict[str, Any] = {"f:spec": {"f:template": {"f:spec": at}}}
    item["metadata"]["managedFields"] = [
        {"manager": "baetyl", "time": "2026-01-01T00:00:00Z", "fieldsV1": tree},
        {"manager": "k3s", "time": "2027-01-01T00:00:00Z", "fieldsV1": {}, "subresource": "status"},
    ]
    api = bed.api
    api.store.put(path_of("Deployment", "asr"), item)


def test_drift_is_reported_and_left_alone(api: Api) -> None:
    bed = field(api)
    came = bed.settle(3)
    writes = len(api.writes)
    assert bed.settler.look(bed.ask(3), came, bed.notes).conditions == ()
    write_back(bed, "1")
    [condition] = bed.settler.look(bed.ask(3), came, bed.notes).conditions or ()
    assert (condition.type, condition.manager) == ("Drifted", "baetyl")
    assert condition.text == "it stands at 1 vcuda-memory and 1 vcuda-core, asked were 3 vcuda-memory and 1 vcuda-core"
    assert len(api.writes) == writes


def test_drift_is_fought_three_times(api: Api) -> None:
    bed = field(api)
    came = bed.settle(3, on_drift=OnDrift.ENFORCE)
    asked = bed.ask(3, on_drift=OnDrift.ENFORCE)
    said = []
    for _ in range(5):
        write_back(bed, "1")
        [condition] = bed.settler.look(asked, came, bed.notes).conditions or ()
        said.append(condition.text.rpartition("; ")[2])
    assert said[:2] == ["set again once", "set again twice"]
    assert said[2:] == ["set again three times, and written back each time"] * 3
    assert len(api.writes) == 1 + 3
    assert bed.limits()["memory"] == "1"


def test_an_app_that_is_gone_is_missing(api: Api) -> None:
    bed = field(api)
    came = bed.settle(3)
    api.store.objects.pop(path_of("Deployment", "asr"))
    [condition] = bed.settler.look(bed.ask(3), came, bed.notes).conditions or ()
    assert condition.type == "Missing"


def test_what_stood_there_already(api: Api) -> None:
    bed = field(api)
    assert bed.settle(1) == Settlement.applied()
    assert not api.writes
    bed.settle(10, force=True)
    bed.notes = Paper()
    came = bed.settle(10)
    assert (came.state, came.code) == (ItemState.REJECTED, "NO_ROOM")
    assert "stood already" in came.text
