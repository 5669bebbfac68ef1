"""kubelet's device checkpoint is lost or cut while containers run, and k3s restarts: nothing of theirs goes."""

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.k3s import K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import cards
from lab.labkit import Node, wait_until

pytestmark = pytest.mark.daily

CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


def start(k3s: K3s, namespace: str, name: str) -> str:
    """Start a pod that takes most of a card; return its container."""
    k3s.apply(pod(name, pod_spec(container(memory=20, core=30)), namespace=namespace))
    k3s.wait_phase(namespace, name, "Running")
    return container_of(k3s, namespace, name)


def container_of(k3s: K3s, namespace: str, name: str) -> str:
    found = k3s.get("pod", name, namespace=namespace)
    return str(found["status"]["containerStatuses"][0]["containerID"])


def state_of(k3s: K3s, name: str) -> str:
    return next((row["state"] for row in k3s.nodes[SERVER].status()["pods"] if row["pod"] == name), "")


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_what_runs_keeps_its_card_its_files_and_its_units(k3s: K3s, namespace: str, how: str) -> None:
    server = Node(SERVER, SERVER)
    before, card = start(k3s, namespace, "a"), k3s.sees(namespace, "a")
    file = server.path(CHECKPOINT)
    server.stop()
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    server.start()
    k3s.wait_allocatable(SERVER, 58, 200)
    start(k3s, namespace, "b")  # with it kubelet writes its file anew
    assert k3s.sees(namespace, "b") != card, "the units of a are its own"
    wait_until(lambda: state_of(k3s, "a") == "unrecorded", what="the plugin says so", timeout_s=60)
    k3s.wait_event(namespace, "a", "kubelet has no record of its devices")
    assert container_of(k3s, namespace, "a") == before
    assert k3s.sees(namespace, "a") == card
    files = k3s.kubectl("exec", "-n", namespace, "a", "--", "ls", "/run/edgegpu/container").split()
    assert {"limits", "usage", "form"} <= set(files)
    k3s.apply(pod("c", pod_spec(container(memory=15, core=1)), namespace=namespace))
    k3s.wait_event(namespace, "c", "needs 15 vcuda-memory on one card")
    k3s.kubectl("delete", "pod", "-n", namespace, "a")
    k3s.wait_phase(namespace, "c", "Running")
    assert k3s.sees(namespace, "c") == card
