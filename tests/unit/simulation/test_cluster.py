"""The embedded cluster's harder parts: restarts, reboots, static and forced pods, Deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from contract.bed import EmbeddedBed, main, phase, pod, waiting_for
from contract.toyplugin import ToyPlugin

from edgegpu_plugin.pb import DevicePluginOptions, OfferedDevice
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.errors import SimError
from edgegpu_sim.kubelet.podworker import PodTimings
from edgegpu_sim.node import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
TOY = "toy.test/thing"
OTHER = "toy.test/other"


@pytest.fixture
def bed(request: pytest.FixtureRequest) -> Iterator[EmbeddedBed]:
    spec = getattr(request, "param", NodeSpec(name="box"))
    with EmbeddedCluster([spec]) as cluster:
        yield EmbeddedBed(cluster)


@pytest.fixture
def toy(bed: EmbeddedBed) -> Iterator[ToyPlugin]:
    plugin = ToyPlugin(bed.devices_folder("box"), TOY, count=8)
    plugin.serve()
    offered(bed, 8)
    yield plugin
    plugin.stop()


def offered(bed: EmbeddedBed, count: int, kind: str = "allocatable", resource: str = TOY) -> None:
    def look() -> bool:
        node = bed.get("Node", "box") or {}
        return str(node.get("status", {}).get(kind, {}).get(resource)) == str(count)

    bed.wait(look, what=f"{count} offered")


def runs(bed: EmbeddedBed, name: str) -> None:
    bed.wait(lambda: phase(bed, name) == "Running", what=f"{name} runs")


def fails(bed: EmbeddedBed, name: str) -> Json:
    bed.wait(lambda: phase(bed, name) == "Failed", what=f"{name} fails")
    found = bed.get("Pod", name)
    assert found is not None
    status: Json = found["status"]
    return status


def deployment(name: str, amount: int, *, strategy: str = "Recreate") -> Json:
    container = main({TOY: amount})
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "strategy": {"type": strategy}, "template": template}
    return {"kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def printed(bed: EmbeddedBed, name: str) -> str:
    """Return what a container has in TOY; nothing while it does not run."""
    try:
        return bed.exec(name, "printenv", "TOY").strip()
    except SimError:
        return ""


def test_after_a_reboot_everything_starts_anew_on_the_devices_it_had(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    init = main({TOY: 1}, name="prepare", command=["true"])
    bed.apply(pod("keeps", {TOY: 3}, init=[init]))
    runs(bed, "keeps")
    before, starts = bed.checkpoint("box"), len(toy.starts)
    node = bed.cluster.nodes["box"]
    toy.stop()
    node.kubelet.stop()
    node.runtime.forget_all()
    node.kubelet.start()
    toy.serve()
    bed.wait(lambda: len(toy.starts) == starts + 2, what="both containers were asked for again")
    runs(bed, "keeps")
    assert len(toy.allocations) == 2
    assert bed.checkpoint("box") == before
    told = bed.wait(lambda: printed(bed, "keeps"), what="the container runs again")
    assert told == ",".join(sorted(toy.starts[-1]))


def test_a_late_plugin_after_a_reboot_fails_the_pod(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    bed.apply(pod("late", {TOY: 3}))
    runs(bed, "late")
    toy.stop()
    bed.cluster.nodes["box"].reboot()
    assert "no healthy devices present" in fails(bed, "late")["message"]


def test_a_crash_loop_is_admitted_anew_after_kubelets_restart(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    bed.apply(pod("loop", containers=[main({TOY: 1}, command=["false"])]))
    bed.wait(lambda: "CrashLoopBackOff" in waiting_for(bed, "loop"), what="a crash loop")
    assert len(toy.allocations) == 1
    toy.stop()
    bed.restart_kubelet("box")
    assert fails(bed, "loop")["reason"] == "UnexpectedAdmissionError"


def test_previous_devices_that_are_ill_fail_a_pod_that_is_admitted_anew(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    toy.wanted = ["toy-0"]
    bed.apply(pod("ill", containers=[main({TOY: 1}, command=["sleep", "0.1"])]))
    bed.wait(lambda: "CrashLoopBackOff" in waiting_for(bed, "ill"), what="a crash loop")
    toy.stop()
    toy.offer([OfferedDevice(f"toy-{i}", healthy=i > 0) for i in range(8)])
    bed.cluster.nodes["box"].kubelet.stop()
    bed.cluster.nodes["box"].kubelet.start()
    toy.serve()
    assert "previously allocated devices are no longer healthy" in fails(bed, "ill")["message"]


def test_a_static_pod_has_kubelets_uid_and_a_mirror_and_survives_its_mirrors_deletion(
    bed: EmbeddedBed, toy: ToyPlugin
) -> None:
    manifest = pod("fixed", {TOY: 2})
    manifest["metadata"]["namespace"] = bed.namespace
    bed.cluster.nodes["box"].kubelet.set_static([manifest])
    runs(bed, "fixed-box")
    mirror = bed.get("Pod", "fixed-box")
    assert mirror is not None
    uid = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
    assert uid != mirror["metadata"]["uid"]
    assert [entry.pod_uid for entry in bed.checkpoint("box")] == [uid]
    assert mirror["metadata"]["ownerReferences"][0]["kind"] == "Node"
    bed.delete("Pod", "fixed-box")
    bed.wait(
        lambda: (bed.get("Pod", "fixed-box") or mirror)["metadata"]["uid"] != mirror["metadata"]["uid"], what="new"
    )
    assert len(toy.allocations) == 1
    bed.cluster.nodes["box"].kubelet.set_static([])
    bed.wait(lambda: bed.get("Pod", "fixed-box") is None, what="the mirror gone")
    bed.wait(lambda: not bed.pod_resources("box"), what="devices let go")


@pytest.mark.parametrize("bed", [NodeSpec(name="box", pace=PodTimings(termination_s=1.0))], indirect=True)
def test_a_forced_pod_gives_its_devices_away_while_its_container_still_runs(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    bed.apply(pod("forced", {TOY: 8}))
    runs(bed, "forced")
    proxy = bed.cluster.nodes["box"].kubelet.proxy
    bed.delete("Pod", "forced", grace_s=0)
    bed.wait(lambda: not proxy("pods")["items"], what="kubelet forgot it")
    assert bed.pod_resources("box") == []
    assert [one["metadata"]["name"] for one in proxy("runningpods")["items"]] == ["forced"]
    bed.wait(lambda: not proxy("runningpods")["items"], what="it ended")
    assert len(toy.allocations) == 1


def test_both_resources_come_in_both_orders_and_one_failure_keeps_the_first_booked(
    bed: EmbeddedBed, toy: ToyPlugin
) -> None:
    other = ToyPlugin(bed.devices_folder("box"), OTHER, count=8, options=DevicePluginOptions(False, False))  # noqa: FBT003
    other.serve()
    try:
        offered(bed, 8, resource=OTHER)
        other.refuse_allocate = "no"
        for number in range(8):
            bed.apply(pod(f"p{number}", {TOY: 1, OTHER: 1}, nodeName="box"))
            fails(bed, f"p{number}")
        assert 0 < len(toy.allocations) < 8
    finally:
        other.stop()


def test_a_resource_that_went_for_good_is_out_of(bed: EmbeddedBed) -> None:
    node = bed.cluster.nodes["box"]
    bed.wait(lambda: bed.get("Node", "box"), what="the node")
    offer = {"status": {"allocatable": {"gone.test/thing": "0"}}}
    bed.cluster.registry.patch("nodes", "", "box", offer, sub="status")
    bed.apply(pod("out", {"gone.test/thing": 1}, nodeName=node.name))
    status = fails(bed, "out")
    assert status["reason"] == "OutOfgone.test/thing"
    assert "requested: 1, used: 0, capacity: 0" in status["message"]


@pytest.mark.parametrize("bed", [NodeSpec(name="box", kubelet={"grace_s": 0.1})], indirect=True)
def test_after_the_grace_a_dead_plugins_capacity_is_nothing(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    toy.stop()
    offered(bed, 0, kind="capacity")


def test_recreate_waits_for_the_old_pods_end(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    bed.apply(deployment("app", 5))
    bed.wait(lambda: [p["status"]["phase"] for p in bed.pods("app=app")] == ["Running"], what="app runs")
    old = bed.pods("app=app")[0]["metadata"]["uid"]
    together = False

    def changed() -> bool:
        # An old pod that has ended but is not gone yet holds nobody back: so it is with real Deployments.
        nonlocal together
        alive = [p for p in bed.pods("app=app") if p["status"]["phase"] not in {"Failed", "Succeeded"}]
        together = together or len(alive) > 1
        return [p["status"]["phase"] for p in alive] == ["Running"] and alive[0]["metadata"]["uid"] != old

    bed.apply(deployment("app", 8))
    bed.wait(changed, what="the new one runs")
    assert not together
    assert [len(ids) for ids in toy.allocations] == [5, 8]
    bed.delete("Deployment", "app")
    bed.wait(lambda: not bed.pods("app=app"), what="app gone")


def test_failed_pods_are_replaced_and_counted(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    toy.refuse_allocate = "never"
    bed.apply(deployment("storm", 1))
    made = bed.cluster.controllers.created
    bed.wait(lambda: sum(made.values()) > 5, what="a storm")
    toy.refuse_allocate = ""
    bed.wait(lambda: any(p["status"]["phase"] == "Running" for p in bed.pods("app=storm")), what="one runs")


def test_an_admission_goes_on_when_the_api_goes_down_in_the_middle(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    toy.before_allocate = bed.cluster.api.stop
    bed.apply(pod("late", {TOY: 1}))
    bed.wait(lambda: toy.allocations, what="kubelet asked")
    toy.before_allocate = lambda: None
    bed.cluster.api.start()
    runs(bed, "late")


def test_while_the_api_is_down_containers_go_on_and_news_are_told_later(bed: EmbeddedBed, toy: ToyPlugin) -> None:
    bed.apply(pod("ends", containers=[main({TOY: 1}, command=["sleep", "0.6"])], restartPolicy="Never"))
    runs(bed, "ends")
    bed.cluster.api.stop()
    runtime = bed.cluster.nodes["box"].runtime
    bed.wait(lambda: not runtime.running(), what="it ended")
    bed.cluster.api.start()
    bed.wait(lambda: phase(bed, "ends") == "Succeeded", what="its end is told")
    assert len(toy.starts) == 1
