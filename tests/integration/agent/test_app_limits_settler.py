"""App limits settled against a small API server on which controllers, scheduler and kubelet act in steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from kits.limitsapi import Api, path_of
from kits.limitsbed import RECREATE, Bed, field, thief
from kits.limitscases import manifest

from edgegpu_agent.app_limits.patches import ASIDE
from edgegpu_core.podview import CARDS_ANNOTATION, write_cards
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.settle import Settlement


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


def test_what_does_not_fit_is_rejected_with_the_numbers_and_the_app_runs_on(api: Api) -> None:
    bed = field(api)
    [before] = bed.world.pods("asr")
    came = bed.settle(10)
    assert (came.state, came.code) == (ItemState.REJECTED, "NO_ROOM")
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


@pytest.mark.parametrize(("node", "state"), [("box-1", ItemState.REJECTED), ("box-2", ItemState.APPLIED)])
def test_a_pod_that_no_report_has_yet_counts_on_its_own_node_alone(api: Api, node: str, state: ItemState) -> None:
    bed = field(api)
    limits = {"baidu.com/vcuda-memory": "2", "baidu.com/vcuda-core": "1"}
    cards = write_cards("late", node, {"main": ("GPU-0",)})
    late = {
        "metadata": {"name": "late", "namespace": "other", "uid": "late", "annotations": {CARDS_ANNOTATION: cards}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    }
    api.store.put("/api/v1/namespaces/other/pods/late", late)
    came = bed.settle(4)
    assert came.state is state
    if state is ItemState.REJECTED:
        assert came.numbers is not None
        assert came.numbers.cards[0].free_units == 2  # 94 less 40, 50 and 2; its own unit counted as free


def test_a_node_whose_inventory_is_not_current_is_asked_again_for_a_while(api: Api) -> None:
    bed = field(api)

    def catch_up() -> None:
        bed.world.kubelet_units = None

    bed.world.kubelet_units = 0
    bed.world.step()
    bed.world.at[bed.world.steps + 2] = catch_up
    assert bed.settle(4).state is ItemState.APPLIED
    bed.world.kubelet_units = 0
    bed.world.step()
    began_s = bed.now_s
    came = bed.settle(1)
    assert (came.state, came.code) == (ItemState.REJECTED, "NO_ROOM")
    assert "its inventory is not current: 94 units, kubelet offers 0" in came.text
    assert bed.now_s - began_s >= bed.around.patience.inventory_s


def test_forced_it_is_pending_and_lands_when_there_is_room(api: Api) -> None:
    bed = field(api)
    came = bed.settle(10, force=True)
    assert (came.state, came.code) == (ItemState.PENDING, "NO_ROOM")
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
    assert came.state is ItemState.REJECTED
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
    assert (came.state, came.code, came.restored) == (ItemState.FAILED, "NO_ROOM", True), came
    assert "needs 20 vcuda-memory" in came.text
    assert bed.limits() == {"memory": "5", "core": "1"}
    assert bed.world.running("asr") == [5]


def test_a_stateful_set_that_stands_is_made_to_go_on_with_the_old_limits(api: Api) -> None:
    bed = Bed(api, (29,))
    bed.world.add(manifest("StatefulSet", "asr", memory=5, replicas=2))
    assert bed.world.running("asr") == [5, 5]
    bed.world.at[bed.world.steps + 1] = lambda: bed.world.held.update(thief(14))
    came = bed.settle(14)
    assert (came.state, came.restored) == (ItemState.FAILED, True), came
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
    assert came.state is ItemState.APPLIED
    assert "ImagePullBackOff" in came.text
    assert bed.limits() == {"memory": "3", "core": "1"}


def test_a_paused_deployment_takes_them_later(api: Api) -> None:
    bed = field(api)
    bed.world.workload("Deployment", "asr")["spec"]["paused"] = True
    came = bed.settle(3)
    assert came.state is ItemState.APPLIED
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
    assert (came.state, came.code) == (ItemState.REJECTED, code)
    assert words in came.text
    assert not api.writes


def test_an_ambiguous_name_is_refused(api: Api) -> None:
    bed = field(api)
    api.store.put(path_of("StatefulSet", "asr"), manifest("StatefulSet", "asr", memory=1))
    came = bed.settle(3)
    assert (came.state, came.code) == (ItemState.REJECTED, "PRECHECK")
    assert "is a Deployment and a StatefulSet" in came.text


class _NoLease:
    """The lease of an agent that never holds it."""

    holder = ""

    def holds(self) -> bool:
        return False

    def known(self, timeout_s: float) -> bool:  # noqa: ARG002  (there is nothing to wait for)
        return True


def test_who_does_not_hold_the_lease_settles_nothing(api: Api) -> None:
    bed = field(api)
    came = bed.make(lease=_NoLease()).settle(bed.ask(3), bed.notes)
    assert came.state is ItemState.ELSEWHERE
    assert bed.settler.look(bed.ask(3), came, bed.notes).again


def test_without_gpu_sharing_nothing_is_set(api: Api) -> None:
    bed = field(api)
    assert bed.make(installed=lambda: False).settle(bed.ask(3), bed.notes).code == "NOT_INSTALLED"
    api.store.objects["/api/v1/nodes/box-1"]["metadata"]["annotations"] = {}
    none = bed.settle(3)
    assert (none.code, none.text) == ("PRECHECK", "no node of the cluster offers GPU shares: `edgegpu doctor` says why")
