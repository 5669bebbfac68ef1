"""The churn run's own readers: of kubelet's checkpoint, of PodResources, of the API's pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from churn.podresources import read_list
from churn.records import CARDS_ANNOTATION, CORE, INIT, MEMORY, SIDECAR, Booking, RecordError, read_checkpoint, read_pod

from edgegpu_plugin.pb.gen import podresources_pb2 as pr


def entry(resource: str, *ids: str, pod: str = "uid-1") -> dict[str, Any]:
    return {"PodUID": pod, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": {"-1": list(ids), "0": None}}


def test_the_checkpoint_says_what_is_booked() -> None:
    entries = [entry(MEMORY, "GPU-a::m0001"), entry(CORE, "GPU-a::c01", "GPU-a::c02"), entry("other.com/thing", "x")]
    text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1})
    memory, core = frozenset({"GPU-a::m0001"}), frozenset({"GPU-a::c01", "GPU-a::c02"})
    assert read_checkpoint(text) == (Booking("uid-1", "main", memory, core),)
    assert read_checkpoint('{"Data":{"PodDeviceEntries":null}}') == ()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"Data":{"PodDeviceEntries":[null]}}'])
def test_another_form_of_checkpoint_is_an_error(text: str) -> None:
    with pytest.raises(RecordError, match="cannot read the checkpoint"):
        read_checkpoint(text)


def answer() -> bytes:
    container = pr.ContainerResources(name="main")
    container.devices.add(resource_name=MEMORY, device_ids=["GPU-a::m0001", "GPU-a::m0002"])
    container.devices.add(resource_name=CORE, device_ids=["GPU-a::c01"])
    container.devices.add(resource_name="other.com/thing", device_ids=["x"])
    pods = [pr.PodResources(name="app", namespace="churn", containers=[container]), pr.PodResources(name="idle")]
    return pr.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


def test_podresources_say_what_is_booked() -> None:
    memory = frozenset({"GPU-a::m0001", "GPU-a::m0002"})
    assert read_list(answer()) == (Booking("churn/app", "main", memory, frozenset({"GPU-a::c01"})),)
    assert read_list(b"") == ()


def test_an_answer_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(RecordError, match="cut short"):
        read_list(answer()[:-3])


def pod(**metadata: object) -> dict[str, Any]:
    def container(name: str, memory: str, core: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {MEMORY: memory, CORE: core}}, **more}

    return {
        "metadata": {"uid": "uid-1", "name": "app", "namespace": "churn", "labels": {"app": "app"}, **metadata},
        "spec": {
            "nodeName": "node",
            "initContainers": [container("first", "4", "1"), container("beside", "1", "1", restartPolicy="Always")],
            "containers": [container("main", "1k", "5"), {"name": "plain"}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "main", "ready": True, "containerID": "containerd://1"},
                {"name": "plain", "ready": True},
            ],
        },
    }


def test_a_pod_of_the_api_is_read() -> None:
    record = read_pod(pod())
    assert [(request.name, request.memory, request.core, request.kind) for request in record.containers] == [
        ("first", 4, 1, INIT),
        ("beside", 1, 1, SIDECAR),
        ("main", 1000, 5, "app"),
    ]
    assert record.running
    assert record.started == {"main": "containerd://1"}
    assert record.cards is None
    assert not read_pod(
        {**pod(), "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True}]}}
    ).running


@pytest.mark.parametrize(
    ("uid", "node", "cards"),
    [("uid-1", "node", {"main": frozenset({"GPU-a"})}), ("uid-2", "node", None), ("uid-1", "other", None)],
)
def test_an_annotation_counts_for_its_own_pod_and_node(uid: str, node: str, cards: object) -> None:
    text = json.dumps({"v": 1, "uid": uid, "node": node, "c": {"main": ["GPU-a"]}})
    assert read_pod(pod(annotations={CARDS_ANNOTATION: text})).cards == cards
    assert read_pod(pod(annotations={CARDS_ANNOTATION: "{"})).cards is None
