"""What kubelet writes of a container's devices into its pod's status, and that a switch of kubelet's ends it.

From Kubernetes 1.36 on the status names each device (feature gate ResourceHealthStatus), in another order at each of
kubelet's syncs of the pod. docs/box/costs.md has the figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.k3s import K3s
from e2e.manifests import container, deployment, pod_spec
from e2e.plugin_node import cards
from lab.labrun import wait_until

MIB = 144_384
"""The memory of the largest card of today."""
UNITS, CORE = MIB // 256, 100
DEVICES = UNITS + CORE
FIRST_MINOR = 36
GATES = "/etc/rancher/k3s/config.yaml.d/20-device-ids.yaml"
OFF = 'kubelet-arg+: ["feature-gates=ResourceHealthStatus=false,ResourceHealthStatusMessage=false"]\n'
SMALLER = 8
"""How many times smaller a pod with the whole card is at least without the ids; 10 were seen."""


def ids_of(pod: dict[str, Any]) -> list[str]:
    """Return the ids of devices in a pod's status, in their order."""
    return [
        entry["resourceID"]
        for status in pod["status"].get("containerStatuses", [])
        for resource in status.get("allocatedResourcesStatus", [])
        for entry in resource["resources"]
    ]


@contextmanager
def device_ids_off(k3s: K3s) -> Iterator[None]:
    """Run kubelet with the lines of docs/box/costs.md."""
    k3s.server.write(GATES, OFF)
    k3s.server.restart()
    try:
        yield
    finally:
        k3s.server.exec("rm", GATES)
        k3s.server.restart()


def whole_card(k3s: K3s, namespace: str, app: str) -> dict[str, Any]:
    """Start a pod with the whole card, see that it runs, and return it."""
    spec = pod_spec(container(memory=UNITS, core=CORE), nodeSelector={"kubernetes.io/hostname": SERVER})
    k3s.apply(deployment(app, spec, namespace=namespace))
    return k3s.wait_phase(namespace, app, "Running")


def size(pod: dict[str, Any]) -> int:
    """Return the bytes of the object, as the API server stores it."""
    return len(json.dumps(pod, separators=(",", ":")))


def test_the_ids_of_devices_in_a_status_can_be_turned_off(k3s: K3s, namespace: str) -> None:
    minor = int(k3s.get("node", SERVER)["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])
    if minor < FIRST_MINOR:
        pytest.skip(f"kubelet 1.{minor} writes no ids of devices into a pod's status")
    insert_cards(k3s, {SERVER: cards(MIB)})
    whole_card(k3s, namespace, "named")

    def named() -> dict[str, Any]:
        pod = k3s.the_pod(namespace, "named")
        return pod if len(ids_of(pod)) == DEVICES else {}

    before = wait_until(named, what=f"all {DEVICES} devices are in the status")
    k3s.kubectl("delete", "deployment", "named", "-n", namespace, "--wait")
    k3s.clear(namespace)
    with device_ids_off(k3s):
        k3s.wait_allocatable(SERVER, UNITS, CORE)
        after = whole_card(k3s, namespace, "plain")
        assert not ids_of(after)
        assert size(before) > SMALLER * size(after), (size(before), size(after))
        print(f"a pod with {DEVICES} devices: {size(before)} bytes, without their ids {size(after)}")  # noqa: T201
