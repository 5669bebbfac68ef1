"""Static pods over a killed k3s, a killed plugin and a boot: their units are nobody else's at any time.

Two of them leave a part of each card free, together more than a pod that waits asks for. So the scheduler's own sum
would let that pod in, and only what the plugin knows of each card keeps it out.
"""

from collections.abc import Iterator

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s
from e2e.manifests import container, deployment, pod, pod_spec
from e2e.plugin_node import cards
from e2e.startwait import own_resolv_conf
from e2e.staticpods import static_pods, steady_amounts, wait_known
from lab.labkit import Node, wait_until

pytestmark = pytest.mark.daily

UNITS = {"left": 20, "right": 20}
REST, WIDE = 9, 15
KILL_CONTAINERS = "grep -l kubepods /proc/[0-9]*/cgroup | cut -d / -f 3 | xargs -r kill -KILL"


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})


@pytest.fixture
def files(k3s: K3s, namespace: str) -> Iterator[None]:
    """Two static pods run, each on its card, and a pod waits for more than either leaves."""
    with static_pods(k3s, k3s.nodes[SERVER], namespace=namespace, units=UNITS):
        seen = [k3s.sees(namespace, f"{name}-{SERVER}") for name in UNITS]
        assert len({line for lines in seen for line in lines}) == 2
        wait_refused(k3s, namespace, "early")
        yield


def wait_refused(k3s: K3s, namespace: str, name: str) -> None:
    """Apply a pod that would overlap with a static one, and wait until its event says why it stays Pending."""
    k3s.apply(pod(name, pod_spec(container(memory=WIDE, core=1)), namespace=namespace))
    said = k3s.wait_event(namespace, name, f"needs {WIDE} vcuda-memory on one card")
    assert f"card 0 has {REST} free, card 1 has {REST} free" in said
    assert k3s.the_pod(namespace, name)["status"]["phase"] == "Pending"


def check_units(k3s: K3s, namespace: str) -> None:
    """Check what the extender lets in: nothing that overlaps, before and after the disturbance, and what fits."""
    wait_known(k3s, k3s.nodes[SERVER], namespace, UNITS)
    wait_refused(k3s, namespace, "late")
    assert k3s.the_pod(namespace, "early")["status"]["phase"] == "Pending"
    k3s.apply(deployment("small", pod_spec(container(memory=REST, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "small", "Running")
    k3s.kubectl("delete", "pod", "early", "late", "-n", namespace, "--now")
    wait_consistent(k3s)


def container_ids(k3s: K3s, namespace: str) -> set[str]:
    statuses = [k3s.the_pod(namespace, name)["status"].get("containerStatuses", []) for name in UNITS]
    return {status.get("containerID", "") for of_pod in statuses for status in of_pod}


@pytest.mark.usefixtures("files")
def test_k3s_is_killed(k3s: K3s, namespace: str) -> None:
    before = container_ids(k3s, namespace)
    with steady_amounts(k3s.nodes[SERVER]):
        k3s.server.kill()
        k3s.server.ready()
        k3s.wait_allocatable(SERVER, 58, 200)
        wait_known(k3s, k3s.nodes[SERVER], namespace, UNITS)
    assert container_ids(k3s, namespace) == before
    check_units(k3s, namespace)


@pytest.mark.usefixtures("files")
def test_the_plugin_is_killed(k3s: K3s, namespace: str) -> None:
    node, before = k3s.nodes[SERVER], container_ids(k3s, namespace)
    with steady_amounts(node):
        node.kill()
        node.start()
        k3s.wait_allocatable(SERVER, 58, 200)
        wait_known(k3s, node, namespace, UNITS)
    assert container_ids(k3s, namespace) == before
    check_units(k3s, namespace)


@pytest.fixture
def waiting_kubelet(k3s: K3s) -> Iterator[None]:
    """At its start kubelet waits for the devices: a static pod that it refuses is not made again."""
    with own_resolv_conf(k3s):
        k3s.nodes[SERVER].stop()
        k3s.nodes[SERVER].start()
        k3s.wait_allocatable(SERVER, 58, 200)
        yield


@pytest.mark.usefixtures("waiting_kubelet", "files")
def test_the_machine_boots(k3s: K3s, namespace: str) -> None:
    """No container is left, and the plugin answers before kubelet does, which lists no static pod at first."""
    server, node, before = Node(SERVER, SERVER), k3s.nodes[SERVER], container_ids(k3s, namespace)
    with steady_amounts(node):
        server.stop()
        node.kill()
        server.exec("sh", "-c", KILL_CONTAINERS)
        node.start()
        server.start()
        k3s.wait_allocatable(SERVER, 58, 200)
        wait_until(lambda: not container_ids(k3s, namespace) & before, what="their containers are new")
        wait_known(k3s, node, namespace, UNITS)
    check_units(k3s, namespace)
