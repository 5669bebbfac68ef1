"""A kubelet with --root-dir: the sockets of device plugins stay where they are, pods and pod-resources move."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import add_extender, grant
from e2e.conftest import LOGS, units
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import PluginNode, cards
from lab.labkit import down, up_server, wait_until

NODE, NAMESPACE = "kubelet-root", "default"
ROOT = "/var/lib/kubelet-of-the-site"
CARDS = cards(7611)


@pytest.fixture(scope="module")
def moved(simdriver_build: Path) -> Iterator[K3s]:
    """Yield a server whose kubelet has another root, with our plugin as the installer configures it there."""
    LOGS.mkdir(parents=True, exist_ok=True)
    down(NODE)
    server = up_server(NODE, f"--kubelet-arg=root-dir={ROOT}")
    cluster = K3s(server)
    node = PluginNode(server, role="server", build=simdriver_build, logs=LOGS)
    try:
        add_extender(cluster)
        server.restart()
        cluster.nodes[NODE] = node
        grant(cluster)
        node.configure(extender={"listen": EXTENDER}, kubelet={"folder": ROOT})
        node.insert_cards(CARDS)
        node.start()
        yield cluster
    finally:
        node.stop()
        down(NODE)


def test_resources_are_offered_and_free_again_after_their_pod(moved: K3s) -> None:
    moved.wait_allocatable(NODE, units(CARDS), 100)
    node = moved.nodes[NODE]
    moved.apply(pod("a", pod_spec(container(memory=units(CARDS), core=100)), namespace=NAMESPACE))
    moved.wait_phase(NAMESPACE, "a", "Running")
    assert [row["pod"] for row in node.status()["pods"]] == ["a"]
    moved.kubectl("delete", "pod", "a", "-n", NAMESPACE, "--now")
    wait_until(lambda: not node.status()["pods"], what="the units are free again", timeout_s=90.0)
    moved.apply(pod("b", pod_spec(container(memory=units(CARDS), core=100)), namespace=NAMESPACE))
    moved.wait_phase(NAMESPACE, "b", "Running")
