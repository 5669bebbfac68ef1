"""An agent node that acts as its own kubelet, beside a server without cards: what it may do, and that it is enough."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import AGENT, SERVER, insert_cards, units
from e2e.consistency import compare
from e2e.k3s import EXTENDER, K3s, measured
from e2e.manifests import container, deployment, pod, pod_spec
from e2e.plugin_node import cards
from e2e.staticpods import static_pods, steady_amounts, wait_known, wait_rows
from lab.labkit import Node, wait_until

from edgegpu_installer.cluster.node_identity import identity, pack, unpack
from edgegpu_installer.layout import K3S_DATA

KUBECONFIG = "/etc/edgegpu/kubeconfig"
MERGE = "application/merge-patch+json"
NOTE = {"metadata": {"annotations": {"edgegpu.io/test": "1"}}}


class AgentNode:
    """Calls to the API server with the certificate of the agent's own kubelet."""

    def __init__(self, k3s: K3s) -> None:
        self._lab = k3s.nodes[AGENT].lab
        self.path = f"{K3S_DATA}/agent/kubelet.kubeconfig"
        self.identity = identity(self._lab.path(self.path).read_text(), path=self.path)

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
    k3s.wait_phase(namespace, "too-large", "Running")


@pytest.fixture
def as_itself(server_without_cards: K3s, agent: AgentNode) -> K3s:
    """The agent's plugin has two cards, and kubelet's own kubeconfig for its own."""
    node = server_without_cards.nodes[AGENT]
    node.insert_cards(cards(7611, 7611))
    path = node.lab.path(KUBECONFIG)
    path.unlink()
    path.symlink_to(agent.path)
    node.start()
    server_without_cards.wait_allocatable(AGENT, 2 * units(cards(7611)), 200)
    return server_without_cards


def test_a_node_that_acts_as_itself_places_refuses_and_releases(as_itself: K3s, namespace: str) -> None:
    k3s = as_itself
    for name, memory in (("share", 10), ("large", 20)):
        place(k3s, namespace, name, memory=memory)
    k3s.apply(pod("next", pod_spec(container(memory=25, core=1)), namespace=namespace))
    k3s.wait_event(namespace, "next", "needs 25 vcuda-memory on one card")
    k3s.kubectl("delete", "pod", "-n", namespace, "share", "--now")
    waited_s, _ = measured(lambda: k3s.wait_phase(namespace, "next", "Running"))
    k3s.report("agent_node_next_large_pod_s", [waited_s], limit=15)
    wait_records_agree(k3s)


def test_what_runs_on_after_a_forced_deletion_keeps_its_units(as_itself: K3s, namespace: str) -> None:
    k3s = as_itself
    words = f"trap '' TERM; while :; do sleep 0.2; : {namespace}; done"
    stubborn = pod_spec(container(memory=27, core=1, command=("sh", "-c", words)), terminationGracePeriodSeconds=10)
    k3s.apply(pod("stubborn", stubborn, namespace=namespace))
    k3s.wait_phase(namespace, "stubborn", "Running")
    assert processes(words)
    place(k3s, namespace, "share")
    k3s.apply(pod("next", pod_spec(container(memory=27, core=1)), namespace=namespace))
    k3s.wait_event(namespace, "next", "Insufficient baidu.com/vcuda-memory")
    k3s.kubectl("delete", "pod", "-n", namespace, "stubborn", "--force", "--grace-period=0")
    held = wait_until(lambda: held_by_the_dead(k3s), what="its units are held", every_s=0.1)
    assert processes(words)
    waited_s, _ = measured(lambda: k3s.wait_phase(namespace, "next", "Running"))
    k3s.report("agent_node_after_forced_deletion_s", [waited_s], limit=30)
    assert "folders" in k3s.nodes[AGENT].status()["kubelet"]["pods_by"]
    assert held == [27]
    assert not processes(words), "its units were given away while it ran"


def test_a_node_that_acts_as_itself_corrects_and_evicts(as_itself: K3s, namespace: str) -> None:
    """Pods with a node's name come by no scheduler: the plugin writes what they have, and refuses what lies wrong."""
    k3s = as_itself
    for name in ("a", "b"):
        k3s.apply(pod(name, pod_spec(container(memory=20, core=1), nodeName=AGENT), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    given = [wait_annotated(k3s, namespace, name) for name in ("a", "b")]
    assert len(set(given)) == 2
    k3s.apply(deployment("wide", pod_spec(container(memory=15, core=1), nodeName=AGENT), namespace=namespace))
    k3s.wait_event(namespace, "wide", "GPURefused")
    first = k3s.the_pod(namespace, "wide")["metadata"]["uid"]
    k3s.kubectl("delete", "pod", "a", "-n", namespace, "--now")
    made = k3s.wait_phase(namespace, "wide", "Running")
    assert made["metadata"]["uid"] != first
    wait_records_agree(k3s)


def test_a_plugin_that_starts_while_the_server_is_away_keeps_the_units_of_static_pods(
    as_itself: K3s, namespace: str
) -> None:
    """kubelet alone names the holders then. Each card has 9 units left, and what asks for 15 waits before and after."""
    k3s, node, units = as_itself, as_itself.nodes[AGENT], {"left": 20, "right": 20}
    server = Node(SERVER, SERVER)
    with static_pods(k3s, node, namespace=namespace, units=units):
        wait_refused(k3s, namespace, "early")
        with steady_amounts(node):
            server.stop()
            try:
                node.kill()
                node.start()
                wait_rows(node, namespace, units, state="unknown")
            finally:
                server.start()
            wait_known(k3s, node, namespace, units)
        wait_refused(k3s, namespace, "late")
        assert k3s.the_pod(namespace, "early")["status"]["phase"] == "Pending"
        place(k3s, namespace, "small", memory=9)
        k3s.kubectl("delete", "pod", "early", "late", "-n", namespace, "--now")
        wait_records_agree(k3s)


def wait_refused(k3s: K3s, namespace: str, name: str) -> None:
    """Apply a pod that would overlap with a static one, and wait until its event says why it stays Pending."""
    k3s.apply(pod(name, pod_spec(container(memory=15, core=1)), namespace=namespace))
    k3s.wait_event(namespace, name, "needs 15 vcuda-memory on one card")
    assert k3s.the_pod(namespace, name)["status"]["phase"] == "Pending"


def test_the_installer_tells_a_node_from_a_server(k3s: K3s, agent: AgentNode) -> None:
    """The Node authorizer says yes to any Node's patch; that it is its own, NodeRestriction sees to."""
    lines = "from pathlib import Path; from edgegpu_installer.cluster.accounts import usable, Account as A; "
    lines += f"p = Path({agent.path!r}); "
    lines += "print(usable(p, A.AGENT), usable(p, A.SERVER))"
    said = k3s.nodes[AGENT].lab.exec(sys.executable, "-c", lines).stdout.split()
    assert said == ["True", "False"]


def wait_annotated(k3s: K3s, namespace: str, app: str) -> str:
    """Wait until a pod's annotation names its card, and return the card's UUID."""

    def probe() -> str:
        metadata = k3s.the_pod(namespace, app)["metadata"]
        text = metadata.get("annotations", {}).get("edgegpu.io/cards", '{"c": {"main": [""]}}')
        return str(json.loads(text)["c"]["main"][0])

    return wait_until(probe, what=f"{app} is annotated")


def held_by_the_dead(k3s: K3s) -> list[int]:
    """Return the units that pods hold which the API has forgotten."""
    return [row["memory_units"] for row in k3s.nodes[AGENT].status()["pods"] if row["state"] == "held"]


def processes(words: str) -> list[str]:
    """Return the numbers of this machine's processes, those in containers included, that were started with words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            found += [entry.parent.name] if words.encode() in entry.read_bytes() else []
    return found


def wait_records_agree(k3s: K3s) -> None:
    """Wait until ledger, checkpoint, annotations and PodResources of the node with cards say the same."""
    wait_until(lambda: compare(k3s, k3s.nodes[AGENT]), what="the records agree", every_s=0.5)


def place(k3s: K3s, namespace: str, name: str, *, memory: int = 4) -> None:
    """A pod with a share is placed on the agent, and sees its card."""
    k3s.apply(pod(name, pod_spec(container(memory=memory, core=10)), namespace=namespace))
    placed = k3s.wait_phase(namespace, name, "Running")
    assert placed["spec"]["nodeName"] == AGENT
    assert "edgegpu.io/cards" in placed["metadata"]["annotations"]
    assert len(k3s.sees(namespace, name)) == 1
