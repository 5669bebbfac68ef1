"""What a kubelet does for a device plugin: the embedded one must do as the real one."""

from __future__ import annotations

import re
from typing import Any

import grpc
import pytest
from contract.bed import Bed, main, phase, pod, waiting_for
from contract.toyplugin import ToyPlugin

from edgegpu_plugin.pb import OfferedDevice

TOY, TWICE = "toy.test/thing", "toy.test/twice"
BY_SOCKET = 37
"""The minor version from which on kubelet knows device plugins by their sockets."""


def minor(bed: Bed) -> int:
    node = bed.get("Node", bed.nodes[0]) or {}
    return int(node["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])


def amounts(bed: Bed, kind: str, resource: str = TOY) -> str:
    node = bed.get("Node", bed.nodes[0]) or {}
    return str(node.get("status", {}).get(kind, {}).get(resource, ""))


def runs(bed: Bed, name: str) -> None:
    bed.wait(lambda: phase(bed, name) == "Running", what=f"{name} runs")


def offered(bed: Bed, count: int, resource: str = TOY) -> None:
    bed.wait(lambda: amounts(bed, "allocatable", resource) == str(count), what=f"{count} devices in the node's status")


def held(bed: Bed, name: str) -> dict[str, frozenset[str]]:
    found = bed.get("Pod", name)
    assert found is not None
    entries = [e for e in bed.checkpoint(bed.nodes[0]) if e.pod_uid == found["metadata"]["uid"]]
    return {entry.container: frozenset(entry.device_ids) for entry in entries}


def test_devices_are_offered_and_at_the_streams_end_unhealthy_at_once(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.offer([OfferedDevice(f"toy-{i}", healthy=i > 0) for i in range(8)])
    offered(bed, 7)
    assert amounts(bed, "capacity") == "8"
    toy.stop()
    offered(bed, 0)
    assert amounts(bed, "capacity") == "8"


def test_a_second_registration_of_a_socket_makes_kubelet_forget_the_first(bed: Bed) -> None:
    """From 1.37 on; kubelets before take it (1.33 to 1.36, read in connectClient of cm/devicemanager).

    Kubelet does not recover before its next start, so the resource is one that no other test uses.
    """
    twice = ToyPlugin(bed.devices_folder(bed.nodes[0]), TWICE, count=8)
    try:
        twice.serve()
        offered(bed, 8, TWICE)
        if minor(bed) < BY_SOCKET:
            twice.register()
            return
        for _ in range(2):
            with pytest.raises(grpc.RpcError, match=r"device plugin already connected: .*twice-"):
                twice.register()
        twice.offer([OfferedDevice(f"toy-{i}") for i in range(7)])
        offered(bed, 7, TWICE)
        twice.stop()
        with pytest.raises(grpc.RpcError, match="device plugin already connected"):
            twice.serve(anew=False)  # the end of the stream has freed nothing
        twice.stop()
        assert amounts(bed, "allocatable", TWICE) == "7"
        twice.offer([OfferedDevice(f"toy-{i}") for i in range(5)])
        twice.serve()
        offered(bed, 5, TWICE)
    finally:
        twice.stop()


def test_a_preferred_set_is_honoured(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.wanted = ["toy-6", "toy-2", "toy-4"]
    bed.apply(pod("wish", {TOY: 3}))
    runs(bed, "wish")
    assert toy.allocations == [{"toy-2", "toy-4", "toy-6"}]
    asked = toy.preferred_calls[0]
    assert (len(asked.available), list(asked.must_include), asked.size) == (8, [], 3)
    assert held(bed, "wish") == {"main": {"toy-2", "toy-4", "toy-6"}}


def test_of_a_bad_preferred_set_only_what_is_free_is_taken(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.wanted = ["toy-1"]
    bed.apply(pod("first", {TOY: 1}))
    runs(bed, "first")
    toy.wanted = ["toy-1", "no-such", "toy-5"]
    bed.apply(pod("second", {TOY: 3}))
    runs(bed, "second")
    got = held(bed, "second")["main"]
    assert "toy-5" in got
    assert "toy-1" not in got
    assert len(got) == 3


def test_apps_reuse_the_devices_of_init_containers(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    init = main({TOY: 2}, name="prepare", command=["true"])
    bed.apply(pod("reuse", {TOY: 4}, init=[init]))
    runs(bed, "reuse")
    got = held(bed, "reuse")
    assert got["prepare"] < got["main"]
    first, second = toy.preferred_calls
    assert list(first.must_include) == []
    assert set(second.must_include) == got["prepare"]
    assert set(second.must_include) <= set(second.available)
    assert second.size == 4


def test_preferences_are_not_asked_for_when_init_containers_leave_enough(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    init = main({TOY: 5}, name="prepare", command=["true"])
    bed.apply(pod("less", {TOY: 2}, init=[init]))
    runs(bed, "less")
    got = held(bed, "less")
    assert got["main"] < got["prepare"]
    assert len(toy.preferred_calls) == 1


@pytest.mark.usefixtures("toy")
def test_a_sidecar_keeps_its_devices(bed: Bed) -> None:
    offered(bed, 8)
    sidecar = main({TOY: 2}, name="beside", restartPolicy="Always")
    bed.apply(pod("pair", {TOY: 2}, init=[sidecar]))
    runs(bed, "pair")
    got = held(bed, "pair")
    assert not got["beside"] & got["main"]


def test_a_start_that_is_refused_is_tried_again(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.refuse_start = "no card has 3 free"
    bed.apply(pod("refused", {TOY: 3}))
    bed.wait(
        lambda: re.fullmatch("CreateContainerConfigError: .*no card has 3 free", waiting_for(bed, "refused")),
        what="a refusal",
    )
    bed.wait(lambda: any("no card has 3 free" in line for line in bed.events("refused")), what="an event")
    toy.refuse_start = ""
    runs(bed, "refused")
    assert toy.starts == toy.allocations


def test_an_error_of_allocate_is_final(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.refuse_allocate = "the card burns"
    bed.apply(pod("final", {TOY: 1}))
    found = bed.wait(lambda: phase(bed, "final") == "Failed" and bed.get("Pod", "final"), what="final failed")
    assert found
    assert found["status"]["reason"] == "UnexpectedAdmissionError"
    assert "Allocate failed due to rpc error: code = " in found["status"]["message"]
    assert "desc = the card burns, which is unexpected" in found["status"]["message"]
    assert amounts(bed, "allocatable") == "8"


def test_an_error_of_the_preference_is_final_too(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    toy.refuse_preferred = "no idea"
    bed.apply(pod("nofancy", {TOY: 1}))
    found = bed.wait(lambda: phase(bed, "nofancy") == "Failed" and bed.get("Pod", "nofancy"), what="nofancy failed")
    assert found
    assert "GetPreferredAllocation rpc failed" in found["status"]["message"]


def test_a_pod_that_nobody_scheduled_fails_when_devices_lack(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    bed.apply(pod("big", {TOY: 9}, nodeName=bed.nodes[0]))
    found = bed.wait(lambda: phase(bed, "big") == "Failed" and bed.get("Pod", "big"), what="big failed")
    assert found
    assert found["status"]["reason"] == "UnexpectedAdmissionError"
    why = f"requested number of devices unavailable for {TOY}. Requested: 9, Available: 8"
    assert why in found["status"]["message"]
    assert toy.allocations == []


def test_podresources_lists_apps_and_sidecars_but_no_init_container(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    inits = [main({TOY: 1}, name="prepare", command=["true"]), main({TOY: 2}, name="beside", restartPolicy="Always")]
    bed.apply(pod("listed", {TOY: 3}, init=inits))
    runs(bed, "listed")
    got = held(bed, "listed")
    listed = [one for one in bed.pod_resources(bed.nodes[0]) if one.pod == "listed"]
    merged: dict[str, frozenset[str]] = {}
    for one in listed:
        merged[one.container] = merged.get(one.container, frozenset()) | frozenset(one.ids)
    assert merged == {"main": got["main"], "beside": got["beside"]}
    assert {(one.namespace, one.resource) for one in listed} == {(bed.namespace, TOY)}
    assert len(toy.starts) == 3


def test_a_dead_pod_is_let_go_by_a_list_and_stays_in_the_checkpoint(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    bed.apply(pod("dead", {TOY: 8}))
    runs(bed, "dead")
    uid = (bed.get("Pod", "dead") or {})["metadata"]["uid"]
    bed.delete("Pod", "dead")
    bed.wait(lambda: bed.get("Pod", "dead") is None, what="dead gone")
    bed.wait(lambda: not bed.pod_resources(bed.nodes[0]), what="devices let go")
    assert uid in {entry.pod_uid for entry in bed.checkpoint(bed.nodes[0])}
    bed.apply(pod("next", {TOY: 8}))
    runs(bed, "next")
    assert toy.allocations[0] == toy.allocations[1]


def test_running_pods_live_through_kubelets_restart_without_a_second_allocate(bed: Bed, toy: ToyPlugin) -> None:
    offered(bed, 8)
    bed.apply(pod("lives", {TOY: 2}))
    runs(bed, "lives")
    before = _container_ids(bed, "lives")
    toy.stop()
    bed.restart_kubelet(bed.nodes[0])
    bed.wait(lambda: amounts(bed, "allocatable") == "0", what="nothing offered")
    toy.serve()
    offered(bed, 8)
    assert phase(bed, "lives") == "Running"
    assert _container_ids(bed, "lives") == before
    assert len(toy.allocations) == 1
    assert len(held(bed, "lives")["main"]) == 2


def test_a_pod_with_a_finished_init_container_fails_when_the_plugin_is_late_after_a_restart(
    bed: Bed, toy: ToyPlugin
) -> None:
    offered(bed, 8)
    init = main({TOY: 2}, name="prepare", command=["true"])
    bed.apply(pod("late", {TOY: 2}, init=[init]))
    runs(bed, "late")
    toy.stop()
    bed.restart_kubelet(bed.nodes[0])
    # kubelet refuses it, ends its container on TERM with 0, and may make the phase from either: seen on the real one,
    # Failed on a busy machine. Only the event tells what happened.
    bed.wait(lambda: phase(bed, "late") in {"Succeeded", "Failed"}, what="late is over", timeout_s=60)
    why = f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {TOY}, which is unexp"
    told = bed.events("late")
    assert any(line.startswith("UnexpectedAdmissionError: ") and why in line for line in told), told


def _container_ids(bed: Bed, name: str) -> list[Any]:
    found = bed.get("Pod", name) or {}
    return [status["containerID"] for status in found["status"]["containerStatuses"]]
