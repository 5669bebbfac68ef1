"""App limits settled against a small API server on which controllers, scheduler and kubelet act in steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from limitsapi import Api, Fault, Json, path_of
from limitscases import manifest
from limitsworld import CLUSTER, MODEL, World

from edgegpu_agent.acts.act import ActStop
from edgegpu_agent.kube import Apps
from edgegpu_agent.limits.around import Around, Patience
from edgegpu_agent.limits.change import ASIDE
from edgegpu_agent.limits.lease import NoLease
from edgegpu_agent.limits.settler import AppLimitsSettler
from edgegpu_core.placement import Share
from edgegpu_sync.settle import Settlement
from edgegpu_sync.spec import AppLimits, Asked, OnDrift, TryKey, item_name
from edgegpu_sync.up import Settled

FIELD = {"forty": (0, 40), "fifty": (0, 50)}


class Ours:
    """The lease in our hand."""

    holder = "box-1"

    def holds(self) -> bool:
        return True

    def known(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True


class Paper:
    """Notes in memory; `at` is the write after which the process dies."""

    def __init__(self) -> None:
        self.value: Any = None
        self.writes = 0

    def read(self) -> Any:  # noqa: ANN401  (JSON)
        return self.value

    def write(self, note: Json) -> None:
        self.value = note
        self.writes += 1


class Bed:
    """A world, a settler whose pauses let it go on, and what is asked of it."""

    def __init__(self, api: Api, units: tuple[int, ...], others: dict[str, tuple[int, int]] | None = None) -> None:
        self.api = api
        self.world = World(api, units, others)
        self.now_s = 0.0
        self.notes = Paper()
        self.stop_after: int | None = None
        self.settler = self.make()

    def make(self, **changes: Any) -> AppLimitsSettler:  # noqa: ANN401
        patience = Patience(rollout_s=60, blame_s=10, ready_s=10, restore_s=30, api_s=20, inventory_s=5)
        self.around = Around(patience, clock=lambda: self.now_s, pause=self.pause)
        parts: dict[str, Any] = {"model": lambda: MODEL, "installed": lambda: True, "around": self.around, **changes}
        return AppLimitsSettler(Apps(self.api.client()), parts.pop("lease", Ours()), **parts)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.world.step()
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                self.around.stop()

    def ask(self, memory: int, core: int = 1, **more: Any) -> Asked:  # noqa: ANN401
        fields = {"cluster": CLUSTER, "namespace": "default", "app": "asr", "container": "main", "rev": 1, **more}
        item = AppLimits(memory_units=memory, core=core, **fields)
        return Asked(name=item_name(item), key=TryKey(1, "00", 0), item=item)

    def settle(self, memory: int, core: int = 1, **more: Any) -> Settlement:  # noqa: ANN401
        return self.settler.settle(self.ask(memory, core, **more), self.notes)

    def limits(self, kind: str = "Deployment") -> dict[str, str]:
        spec = self.world.workload(kind, "asr")["spec"]["template"]["spec"]
        found: dict[str, str] = spec["containers"][0]["resources"].get("limits", {})
        return {name.rpartition("-")[2]: amount for name, amount in found.items()}


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


RECREATE: dict[str, Any] = {"strategy": {"type": "Recreate"}}


def field(api: Api, **spec: Any) -> Bed:  # noqa: ANN401
    """Return the field's card: 40 and 50 of others, one unit of the app's."""
    bed = Bed(api, (94,), FIELD)
    bed.world.add(manifest("Deployment", "asr", memory=1, **(spec or RECREATE)))
    assert bed.world.running("asr") == [1]
    return bed


def test_what_does_not_fit_is_rejected_with_the_numbers_and_the_app_runs_on(api: Api) -> None:
    bed = field(api)
    [before] = bed.world.pods("asr")
    came = bed.settle(10)
    assert (came.state, came.code) == (Settled.REJECTED, "NO_ROOM")
    assert came.text.startswith("needs 10 vcuda-memory on one card; card 0 has 4 free")
    assert came.numbers is not None
    assert (came.numbers.verdict, came.numbers.need_units, came.numbers.cards[0].held_by_app_units) == (
        "never_fits",
        10,
        1,
    )
    assert not api.writes
    assert bed.notes.value is None
    assert bed.world.pods("asr") == [before]


def test_forced_it_is_pending_and_lands_when_there_is_room(api: Api) -> None:
    bed = field(api)
    came = bed.settle(10, force=True)
    assert (came.state, came.code) == (Settled.PENDING, "NO_ROOM")
    assert "needs 10 vcuda-memory" in came.text
    asked = bed.ask(10, force=True)
    assert bed.settler.look(asked, came, bed.notes).landed is None
    bed.world.held.pop("forty")
    for _ in range(4):
        bed.world.step()
    sight = bed.settler.look(asked, came, bed.notes)
    assert sight.landed == Settlement.applied()
    assert sight.conditions == ()


def test_what_fits_is_applied_and_verified(api: Api) -> None:
    bed = Bed(api, (29, 29), {"x": (0, 4), "y": (0, 20)})
    bed.world.add(manifest("Deployment", "asr", memory=4, **RECREATE))
    assert bed.settle(20) == Settlement.applied()
    assert bed.world.running("asr") == [20]
    assert bed.limits() == {"memory": "20", "core": "1"}
    [write] = api.writes
    assert (write.method, write.manager) == ("PATCH", "edgegpu-agent")
    assert write.body["spec"] == {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "limits": {"baidu.com/vcuda-memory": "20", "baidu.com/vcuda-core": "1"},
                            "requests": {"baidu.com/vcuda-memory": None, "baidu.com/vcuda-core": None},
                        },
                    }
                ]
            }
        }
    }
    assert bed.notes.value["before"]["limits"]["baidu.com/vcuda-memory"] == "4"


def test_a_rolling_update_by_its_surge_and_with_an_interruption(api: Api) -> None:
    rolling: dict[str, Any] = {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    }
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=10, **rolling))
    assert bed.settle(15) == Settlement.applied()
    came = bed.settle(20)
    assert came.state is Settled.REJECTED
    assert "only when its own pods have gone" in came.text
    assert "allow an interruption" in came.text
    assert came.numbers is not None
    assert came.numbers.verdict == "fits_after_stop"
    assert bed.settle(20, interrupt=True) == Settlement.applied()
    assert bed.world.running("asr") == [20]
    item = bed.world.workload("Deployment", "asr")
    assert item["spec"]["strategy"] == rolling["strategy"]
    assert ASIDE not in item["metadata"]["annotations"]


def test_limits_are_taken_away_and_given_where_there_were_none(api: Api) -> None:
    bed = field(api)
    item = bed.world.workload("Deployment", "asr")
    item["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {
        "baidu.com/vcuda-memory": "1",
        "cpu": "1",
    }
    assert bed.settle(0, 0) == Settlement.applied()
    resources = bed.world.workload("Deployment", "asr")["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {}, "requests": {"cpu": "1"}}
    assert bed.world.running("asr") == [0]
    assert bed.settle(3) == Settlement.applied()
    assert bed.world.running("asr") == [3]


def test_limits_at_fault_are_put_back(api: Api) -> None:
    """Somebody else is quicker after the verdict."""
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=5, **RECREATE))
    bed.world.at[bed.world.steps + 1] = lambda: bed.world.held.update(thief())
    came = bed.settle(20)
    assert (came.state, came.code, came.restored) == (Settled.FAILED, "NO_ROOM", True), came
    assert "needs 20 vcuda-memory" in came.text
    assert bed.limits() == {"memory": "5", "core": "1"}
    assert bed.world.running("asr") == [5]


def thief(units: int = 15) -> dict[str, tuple[Share, ...]]:
    """Return what somebody takes who is quicker."""
    return {"thief": (Share("GPU-0", units, 1),)}


def test_a_stateful_set_that_stands_is_made_to_go_on_with_the_old_limits(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("StatefulSet", "asr", memory=5, replicas=2))
    assert bed.world.running("asr") == [5, 5]
    bed.world.at[bed.world.steps + 1] = lambda: bed.world.held.update(thief(14))
    came = bed.settle(14)
    assert (came.state, came.restored) == (Settled.FAILED, True), came
    assert bed.world.running("asr") == [5, 5]
    assert bed.world.workload("StatefulSet", "asr")["spec"]["replicas"] == 2
    assert ASIDE not in bed.world.workload("StatefulSet", "asr")["metadata"]["annotations"]


def test_a_stateful_set_in_turn(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("StatefulSet", "asr", memory=10, replicas=2))
    assert bed.settle(14) == Settlement.applied()
    assert bed.world.running("asr") == [14, 14]


def test_an_image_that_cannot_be_pulled_is_no_fault_of_the_limits(api: Api) -> None:
    bed = field(api)
    bed.world.broken = True
    came = bed.settle(3)
    assert came.state is Settled.APPLIED
    assert "ImagePullBackOff" in came.text
    assert bed.limits() == {"memory": "3", "core": "1"}


def test_a_paused_deployment_takes_them_later(api: Api) -> None:
    bed = field(api)
    bed.world.workload("Deployment", "asr")["spec"]["paused"] = True
    came = bed.settle(3)
    assert came.state is Settled.APPLIED
    assert "paused" in came.text
    assert bed.world.running("asr") == [1]


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"cluster": "00000000-0000"}, "PRECHECK", "the limits are for 00000000-0000"),
        ({"namespace": "kube-system"}, "PRECHECK", "never changed"),
        ({"app": "nobody"}, "PRECHECK", "there is no Deployment, StatefulSet or DaemonSet default/nobody"),
        ({"container": "other"}, "PRECHECK", "has no container other; it has main"),
        ({"core": 0}, "NO_ROOM", "without vcuda-core"),
    ],
)
def test_what_is_refused_before_anything_is_asked(api: Api, more: dict[str, Any], code: str, words: str) -> None:
    bed = field(api)
    fields = {"memory": 3, "core": 1, **more}
    came = bed.settle(fields.pop("memory"), fields.pop("core"), **fields)
    assert (came.state, came.code) == (Settled.REJECTED, code)
    assert words in came.text
    assert not api.writes


def test_an_ambiguous_name_is_refused(api: Api) -> None:
    bed = field(api)
    api.store.put(path_of("StatefulSet", "asr"), manifest("StatefulSet", "asr", memory=1))
    came = bed.settle(3)
    assert (came.state, came.code) == (Settled.REJECTED, "PRECHECK")
    assert "is a Deployment and a StatefulSet" in came.text


def test_who_does_not_hold_the_lease_settles_nothing(api: Api) -> None:
    bed = field(api)
    came = bed.make(lease=NoLease()).settle(bed.ask(3), bed.notes)
    assert came.state is Settled.ELSEWHERE
    assert bed.settler.look(bed.ask(3), came, bed.notes).again


def test_without_gpu_sharing_nothing_is_set(api: Api) -> None:
    bed = field(api)
    assert bed.make(installed=lambda: False).settle(bed.ask(3), bed.notes).code == "NOT_INSTALLED"
    api.store.objects["/api/v1/nodes/box-1"]["metadata"]["annotations"] = {}
    assert bed.settle(3).code == "NOT_INSTALLED"


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
    assert (came.state, came.code) == (Settled.REJECTED, "ERROR")
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
    except ActStop:
        bed.stop_after = None
        bed.settler = bed.make()
        came = bed.settle(20)
    assert came.state is (Settled.APPLIED if fits else Settled.FAILED)
    assert bed.world.running("asr") == [20 if fits else 5]
    assert len(api.writes) == (1 if fits else 2), "done once"


def test_a_crash_in_an_interruption_puts_the_strategy_back(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("Deployment", "asr", memory=10))
    bed.stop_after = 0
    with pytest.raises(ActStop):
        bed.settle(20, interrupt=True)
    item = bed.world.workload("Deployment", "asr")
    assert item["spec"]["strategy"]["type"] == "Recreate"
    bed.stop_after = None
    bed.settler = bed.make()
    sight = bed.settler.look(bed.ask(20), Settlement.failed("ATTEMPTS", "", restored=False), bed.notes)
    assert sight.conditions == ()
    assert bed.world.workload("Deployment", "asr")["spec"]["strategy"] == {"type": "RollingUpdate"}


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
    assert (came.state, came.code) == (Settled.REJECTED, "NO_ROOM")
    assert "stood already" in came.text
