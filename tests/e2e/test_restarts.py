"""k3s killed and started again, twenty times, over pods of the difficult kinds: all keep running where they are."""

import os
from collections.abc import Sequence

import pytest
from e2e.conftest import AGENT, SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s
from e2e.manifests import Manifest, container, deployment, pod_spec
from e2e.plugin_node import cards
from lab.labkit import wait_until

KILLS = int(os.environ.get("EDGEGPU_KILLS", "20"))
PATIENCE_MS = 150.0
"""How long a new kubelet surely waits before it fails pods whose resource has no device."""


@pytest.fixture(scope="module", autouse=True)
def different_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611), AGENT: cards(24259)})


def here(*containers: Manifest, init: Sequence[Manifest] = ()) -> Manifest:
    return pod_spec(*containers, init=init, nodeSelector={"kubernetes.io/hostname": SERVER})


def containers_of(k3s: K3s, namespace: str) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["containerID"]
        for pod in k3s.pods(namespace)
        if pod["metadata"]["labels"]["app"] != "loop"
    }


def test_twenty_kills_of_k3s(k3s: K3s, namespace: str) -> None:
    first = container("first", 3, 1, command=["true"])
    crash = container(memory=1, core=1, command=["sh", "-c", "sleep 1; exit 1"])
    specs = {
        "plain": here(container(memory=4, core=1)),
        "large": here(container(memory=20, core=1)),
        "init": here(container(memory=2, core=2), init=[first]),
        "several": here(container("left", 1, 2), container("right", 2, 1)),
        "loop": here(crash),
    }
    for name, spec in specs.items():
        k3s.apply(deployment(name, spec, namespace=namespace))
    for name in specs.keys() - {"loop"}:
        k3s.wait_phase(namespace, name, "Running")
    wait_until(
        lambda: k3s.the_pod(namespace, "loop")["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) > 0,
        what="the crash loop has begun",
        timeout_s=60,
    )
    before, alive = wait_consistent(k3s), containers_of(k3s, namespace)
    registered, late = [], 0
    for turn in range(KILLS):
        k3s.server.kill()
        k3s.server.ready()
        k3s.wait_allocatable(SERVER, 58, 200)
        registered.append(k3s.nodes[SERVER].status()["kubelet"]["registered_ms"])
        after = wait_consistent(k3s, timeout_s=60)
        if after != before:
            # Only a machine too busy to answer in time excuses it, and then controllers must have made it good.
            assert registered[-1] > PATIENCE_MS, f"kill {turn + 1}: a pod failed although the plugin was in time"
            late += 1
            for name in specs.keys() - {"loop"}:
                k3s.wait_phase(namespace, name, "Running", timeout_s=30)
            before, alive = wait_consistent(k3s, timeout_s=60), containers_of(k3s, namespace)
        assert containers_of(k3s, namespace) == alive, f"kill {turn + 1}"
        assert len(k3s.pods(namespace)) == len(specs), f"kill {turn + 1}: a dead pod was left behind"
    k3s.report("kubelet_registered_ms", registered, limit=PATIENCE_MS)
    k3s.report("kills_answered_too_late", [float(late)], limit=0.0)
    assert late <= KILLS // 5, "this machine is too busy to say anything"
    k3s.apply(deployment("new", here(container(memory=20, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "new", "Running")
    wait_consistent(k3s)
