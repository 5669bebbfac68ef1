"""An agent node that acts as its own kubelet, beside a server without cards: what it may do, and that it is enough."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.conftest import AGENT, SERVER, insert_cards, units
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import cards

from edgegpu_installer.nodeidentity import identity, kubelet_kubeconfigs, node_name, pack, unpack

KUBECONFIG = "/etc/edgegpu/kubeconfig"
MERGE = "application/merge-patch+json"
NOTE = {"metadata": {"annotations": {"edgegpu.io/test": "1"}}}


class AgentNode:
    """Calls to the API server with the certificate of the agent's own kubelet."""

    def __init__(self, k3s: K3s) -> None:
        self._lab = k3s.nodes[AGENT].lab
        self.path = kubelet_kubeconfigs()[0]
        self.identity = identity(self._lab.path(self.path).read_text(), path=self.path)

    def certificate(self) -> bytes:
        return self._lab.path(self.identity.cert_file).read_bytes()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> int:
        """Return the HTTP status of a call."""
        who = self.identity
        words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, f"{who.server}{path}"]
        words += ["--cacert", who.ca_file, "--cert", who.cert_file, "--key", who.key_file]
        if body is not None:
            kind = MERGE if method == "PATCH" else "application/json"
            words += ["-H", f"Content-Type: {kind}", "-d", json.dumps(body)]
        return int(self._lab.exec(*words).stdout)


@pytest.fixture
def agent(k3s: K3s) -> AgentNode:
    return AgentNode(k3s)


@pytest.fixture
def server_without_cards(k3s: K3s) -> Iterator[K3s]:
    """The server's plugin is an extender alone; the agent has a card, and its plugin is not started yet."""
    server, node = k3s.nodes[SERVER], k3s.nodes[AGENT]
    insert_cards(k3s, {})
    account = node.lab.path(KUBECONFIG).read_text()
    try:
        server.role = "extender-only"
        server.configure(extender={"listen": EXTENDER})
        server.start()
        node.insert_cards(cards(7611))
        yield k3s
    finally:
        server.stop()
        node.stop()
        server.role = "server"
        server.configure(extender={"listen": EXTENDER})
        node.lab.path(KUBECONFIG).unlink()
        node.lab.write(KUBECONFIG, account, mode=0o600)


Call = tuple[str, str, dict[str, Any] | None]
NODES, MINE, OTHERS = "/api/v1/nodes", f"/api/v1/nodes/{AGENT}", f"/api/v1/nodes/{SERVER}"


def allowed(namespace: str) -> list[Call]:
    """What a node may do by its kubelet's certificate: what edgegpu asks of the API there, less one (see refused)."""
    mark = {"metadata": {"annotations": {"edgegpu.io/test": "1"}, "labels": {"edgegpu.io/test": "1"}}}
    unmark = {"metadata": {"annotations": {"edgegpu.io/test": None}, "labels": {"edgegpu.io/test": None}}}
    amounts = {"status": {"capacity": {"edgegpu.io/test": "1"}, "allocatable": {"edgegpu.io/test": "1"}}}
    no_amounts = {"status": {"capacity": {"edgegpu.io/test": None}, "allocatable": {"edgegpu.io/test": None}}}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Test", "message": "m"}
    event |= {"involvedObject": {"kind": "Pod", "name": "own", "namespace": namespace}, "type": "Normal"}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    return [
        ("GET", MINE, None),
        ("GET", f"{NODES}?fieldSelector=metadata.name%3D{AGENT}", None),
        ("PATCH", MINE, mark),
        ("PATCH", MINE, unmark),
        ("PATCH", f"{MINE}/status", amounts),
        ("PATCH", f"{MINE}/status", no_amounts),
        ("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{AGENT}", None),
        ("GET", f"{pods}/own", None),
        ("PATCH", f"{pods}/own/status", NOTE),
        ("POST", f"/api/v1/namespaces/{namespace}/events", event),
        ("PATCH", f"/api/v1/namespaces/{namespace}/events/e", {"count": 2}),
        ("POST", f"{pods}/own/eviction", eviction("own", namespace)),
        ("DELETE", f"{pods}/gone", None),
    ]


def refused(namespace: str) -> list[Call]:
    """What it may not: other nodes and their pods, binding, and kubelet's own pod list."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    return [
        ("GET", OTHERS, None),
        ("GET", NODES, None),
        ("PATCH", OTHERS, NOTE),
        ("GET", "/api/v1/pods", None),
        ("GET", f"{pods}/other", None),
        ("PATCH", f"{pods}/own", NOTE),
        ("PATCH", f"{pods}/other/status", NOTE),
        ("POST", f"{pods}/other/eviction", eviction("other", namespace)),
        ("DELETE", f"{pods}/other", None),
        ("GET", f"{MINE}/proxy/pods", None),
        ("POST", f"{pods}/own/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "own"}}),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/edgegpu", None),
    ]


def eviction(name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}


def test_what_a_node_may_do_as_itself(k3s: K3s, agent: AgentNode, namespace: str) -> None:
    assert node_name(agent.certificate()) == AGENT
    for name, where in (("own", AGENT), ("gone", AGENT), ("other", SERVER)):
        k3s.apply(pod(name, pod_spec(container()) | {"nodeName": where}, namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    calls = [*refused(namespace), *allowed(namespace)]
    seen = [(method, path, agent.call(method, path, body)) for method, path, body in calls]
    assert [(m, p) for m, p, code in seen if code == 403] == [(m, p) for m, p, _ in refused(namespace)]
    assert [one for one in seen if one[2] not in {200, 201, 403}] == []


def test_the_servers_scheduler_sees_the_cards_of_a_node_with_a_join_token(
    server_without_cards: K3s, agent: AgentNode, namespace: str
) -> None:
    """The token's own account, by the agent's load balancer over all servers."""
    k3s, lab = server_without_cards, server_without_cards.nodes[AGENT].lab
    ca = lab.path(agent.identity.ca_file).read_text()
    token = k3s.kubectl("create", "token", "edgegpu-agent", "-n", "edgegpu", "--duration=1h").strip()
    word = pack(server=f"https://{k3s.server.ip}:6443", ca_pem=ca, token=token)
    lab.write(KUBECONFIG, unpack(word).kubeconfig(ca, server=agent.identity.server), mode=0o600)
    k3s.nodes[AGENT].start()
    k3s.wait_allocatable(AGENT, units(cards(7611)), 100)
    place(k3s, namespace, "share")
    k3s.apply(pod("too-large", pod_spec(container(memory=26, core=1)), namespace=namespace))
    k3s.wait_event(namespace, "too-large", "Insufficient baidu.com/vcuda-memory")
    k3s.kubectl("delete", "pod", "-n", namespace, "share", "--now")
    k3s.wait_phase(namespace, "too-large", "Running", timeout_s=120)


def test_the_servers_scheduler_sees_the_cards_of_a_node_that_acts_as_itself(
    server_without_cards: K3s, agent: AgentNode, namespace: str
) -> None:
    k3s, node = server_without_cards, server_without_cards.nodes[AGENT]
    path = node.lab.path(KUBECONFIG)
    account = path.read_text()
    path.unlink()
    path.symlink_to(agent.path)
    node.start()
    k3s.wait_allocatable(AGENT, units(cards(7611)), 100)
    place(k3s, namespace, "share")
    node.stop()
    path.unlink()
    node.lab.write(KUBECONFIG, account, mode=0o600)
    node.start()


def place(k3s: K3s, namespace: str, name: str) -> None:
    """A pod with a share is placed on the agent, and sees its card."""
    k3s.apply(pod(name, pod_spec(container(memory=4, core=10)), namespace=namespace))
    placed = k3s.wait_phase(namespace, name, "Running")
    assert placed["spec"]["nodeName"] == AGENT
    assert "edgegpu.io/cards" in placed["metadata"]["annotations"]
    assert len(k3s.sees(namespace, name)) == 1
