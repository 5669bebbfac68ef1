"""Two nodes with different cards: the extender on the server places for both."""

import pytest
from e2e.conftest import AGENT, SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, deployment, pod, pod_spec
from e2e.plugin_node import cards


@pytest.fixture(autouse=True)
def different_cards(k3s: K3s) -> None:
    insert_cards(k3s, {SERVER: cards(7611, 7611), AGENT: cards(24259)})


def test_pods_go_where_a_card_is_large_enough(k3s: K3s, namespace: str) -> None:
    k3s.apply(pod("large", pod_spec(container(memory=60, core=1)), namespace=namespace))
    assert k3s.wait_phase(namespace, "large", "Running")["spec"]["nodeName"] == AGENT
    k3s.apply(pod("pair", pod_spec(container(core=200)), namespace=namespace))
    assert k3s.wait_phase(namespace, "pair", "Running")["spec"]["nodeName"] == SERVER
    assert len(k3s.sees(namespace, "pair")) == 2
    k3s.apply(pod("next", pod_spec(container(memory=40, core=1)), namespace=namespace))
    said = k3s.wait_event(namespace, "next", "Insufficient baidu.com/vcuda-memory")
    assert "UnexpectedAdmissionError" not in said
    wait_consistent(k3s)


def test_twenty_pods_at_once_with_several_containers_and_init_containers(k3s: K3s, namespace: str) -> None:
    quick = ["sh", "-c", "nvidia-smi -L | grep -c GPU"]
    specs = {
        "plain": pod_spec(container(memory=2, core=3)),
        "other": pod_spec(container(memory=3, core=3)),
        "several": pod_spec(container("left", 1, 2), container("right", 2, 1)),
        "init": pod_spec(container(memory=2, core=2), init=[container("first", 3, 1, command=quick)]),
    }
    for name, spec in specs.items():
        k3s.apply(deployment(name, spec, namespace=namespace, replicas=5))
    for name in specs:
        k3s.kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=180s")
    wait_consistent(k3s)
    pods = k3s.pods(namespace)
    assert len(pods) == 20, "a pod died at admission and was made again"
    assert {p["status"]["phase"] for p in pods} == {"Running"}
    assert {p["spec"]["nodeName"] for p in pods} <= {SERVER, AGENT}


def test_a_plugin_killed_in_between_loses_nothing(k3s: K3s, namespace: str) -> None:
    spec = pod_spec(container(memory=2, core=3))
    k3s.apply(deployment("before", spec, namespace=namespace, replicas=4))
    k3s.kubectl("rollout", "status", "deployment/before", "-n", namespace, "--timeout=120s")
    before = wait_consistent(k3s)
    k3s.apply(deployment("during", spec, namespace=namespace, replicas=8))
    for node in k3s.nodes.values():
        node.kill()
        node.start()
    k3s.kubectl("rollout", "status", "deployment/during", "-n", namespace, "--timeout=180s")
    after = wait_consistent(k3s)
    assert before.items() <= after.items()


def test_the_servers_plugin_stopped_and_started_lets_nothing_be_placed_wrong(k3s: K3s, namespace: str) -> None:
    server = k3s.nodes[SERVER]
    server.stop()
    k3s.apply(pod("waits", pod_spec(container(memory=60, core=1)), namespace=namespace))
    k3s.wait_event(namespace, "waits", "connection refused")
    assert k3s.the_pod(namespace, "waits")["status"]["phase"] == "Pending"
    server.start()
    k3s.wait_phase(namespace, "waits", "Running")
    k3s.wait_allocatable(SERVER, 58, 200)
    wait_consistent(k3s)


def test_the_extenders_listener_closed_and_opened(k3s: K3s, namespace: str) -> None:
    k3s.apply(pod("before", pod_spec(container(memory=4, core=1)), namespace=namespace))
    k3s.wait_phase(namespace, "before", "Running")
    before = wait_consistent(k3s)
    rule = ["INPUT", "-p", "tcp", "--dport", EXTENDER.rpartition(":")[2], "-j", "REJECT"]
    lab = k3s.nodes[SERVER].lab
    lab.exec("iptables", "-w", "-I", *rule)
    try:
        k3s.apply(pod("during", pod_spec(container(memory=60, core=1)), namespace=namespace))
        k3s.wait_event(namespace, "during", "connection refused")
        assert k3s.the_pod(namespace, "during")["status"]["phase"] == "Pending"
        assert wait_consistent(k3s) == before
    finally:
        lab.exec("iptables", "-w", "-D", *rule)
    k3s.wait_phase(namespace, "during", "Running", timeout_s=400)
    assert before.items() <= wait_consistent(k3s).items()
