"""Several servers: two plain kube-schedulers with leader election before one API server, an extender beside each.

Both run on one node, and the second extender on another port: what matters is who leads, and whom that one asks.
"""

import http.client
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster import grant
from e2e.conftest import LOGS, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s, scheduler_configuration
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import PluginNode, cards
from kits.cert import Certs, make_certs
from lab.kubeadmkit import scheduler_binary
from lab.labkit import LabError, Node, Process, down, up_server, wait_until

from edgegpu_core.podview import CARDS_ANNOTATION
from edgegpu_installer.cluster.nodes import completeness

NODE, NAMESPACE = "leaders", "baetyl-edge"
KUBECONFIG = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
LEASE = ("--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s")
FIRST, SECOND = "127.0.0.1:8787", "127.0.0.1:8788"

_BOUND = re.compile(r"INFO extender connection edgegpu_plugin\.extender\.bind: bound pod (\S+) to (.+)")


class Scheduler:
    """One kube-scheduler process that wants to lead; without a file it knows of no extender."""

    def __init__(self, node: Node, name: str, *, port: int, file: str = "") -> None:
        self._node, self._name, self._port, self._file = node, name, port, file
        self._process: Process | None = None
        self.log = LOGS / f"{name}.log"
        self.log.unlink(missing_ok=True)

    def start(self) -> None:
        """Start it; it waits until it may lead."""
        told = [f"--config={self._file}"] if self._file else [f"--kubeconfig={KUBECONFIG}"]
        told += [f"--{what}-kubeconfig={KUBECONFIG}" for what in ("authentication", "authorization")]
        words = (*told, "--leader-elect=true", *LEASE, "--bind-address=127.0.0.1", f"--secure-port={self._port}")
        self._process = self._node.popen(str(scheduler_binary()), *words, log=self.log)
        self.waits()

    def waits(self) -> None:
        """Wait until it is a candidate."""
        self._says("attempting to acquire leader lease", "stands for election")

    def leads(self) -> None:
        """Wait until it leads, and its caches are full."""
        self._says("successfully acquired lease", "leads")

    def kill(self) -> None:
        """Kill -9: the lease has to run out."""
        self._end(kill=True)

    def stop(self) -> None:
        """End it in an orderly way: it gives the lease back."""
        self._end(kill=False)

    def _end(self, *, kill: bool) -> None:
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._process.terminate()
            self._process.wait(30)
            self._process = None
            self.log.write_text("")

    def _says(self, words: str, what: str) -> None:
        def probe() -> bool:
            return self.log.exists() and words in self.log.read_text().lower()  # the case depends on the version

        wait_until(probe, what=f"{self._name} {what} ({self.log})")


class SecondExtender:
    """An edgegpu-plugin of the role extender-only: that of a server without cards."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._process: Process | None = None
        self.log = LOGS / "second-extender.log"
        self.log.unlink(missing_ok=True)
        self._config = {
            "version": 1,
            "node_name": "second",
            "role": "extender-only",
            "extender": {"listen": SECOND},
            "paths": {"state": "/var/lib/edgegpu-second", "run": "/run/edgegpu-second"},
            "log_level": "debug",
        }

    def start(self) -> None:
        """Start it, and wait until it answers."""
        path = "/etc/edgegpu/second.yaml"
        self._node.write(path, yaml.safe_dump(self._config))
        command = (sys.executable, "-m", "edgegpu_plugin", "--config", path)
        self._process = self._node.popen(*command, log=self.log)
        wait_until(self._ready, what="the second extender is ready")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def _ready(self) -> bool:
        link = http.client.HTTPConnection("localhost", timeout=5)
        link.sock = socket.socket(socket.AF_UNIX)
        try:
            link.sock.connect(str(self._node.path("/run/edgegpu-second/plugin.sock")))
            link.request("GET", "/v1/status")
            status: dict[str, Any] = json.loads(link.getresponse().read())
        except OSError as error:
            raise LabError(f"no answer: {error}") from error
        finally:
            link.close()
        return bool(status["extender"]["healthy"] and status["api"]["synced"])


class Servers:
    """The cluster with its schedulers."""

    def __init__(self, cluster: K3s, node: Node, certs: Certs) -> None:
        self.cluster = cluster
        self.extender = SecondExtender(node)
        self.first = Scheduler(node, "first", port=10261, file=self._file(node, certs, FIRST))
        self.second = Scheduler(node, "second", port=10262, file=self._file(node, certs, SECOND))
        self.blind = Scheduler(node, "blind", port=10263)
        self._names = iter(range(1000))

    def _file(self, node: Node, certs: Certs, extender: str) -> str:
        path = f"/etc/edgegpu/scheduler-{extender.rpartition(':')[2]}.yaml"
        node.write(path, scheduler_configuration(certs).replace(FIRST, extender), mode=0o600)
        return path

    def make(self, *, count: int = 1, memory: int = 2, core: int = 1) -> list[str]:
        """Make pods; returns their names."""
        names = [f"pod{next(self._names)}" for _ in range(count)]
        spec = pod_spec(container(memory=memory, core=core))
        self.cluster.apply(*(pod(name, spec, namespace=NAMESPACE) for name in names))
        return names

    def run(self, names: list[str]) -> None:
        """Wait until pods run, each on the card that an extender has chosen."""
        for name in names:
            placed = self.cluster.wait_phase(NAMESPACE, name, "Running")
            assert json.loads(placed["metadata"]["annotations"][CARDS_ANNOTATION])["node"] == NODE

    def stop(self) -> None:
        """End all schedulers."""
        for scheduler in (self.first, self.second, self.blind):
            scheduler.stop()


@pytest.fixture(scope="module")
def servers(simdriver_build: Path) -> Iterator[Servers]:
    LOGS.mkdir(parents=True, exist_ok=True)
    down(NODE)
    node = up_server(NODE, "--disable-scheduler")
    cluster = K3s(node)
    plugin = PluginNode(node, role="server", build=simdriver_build, logs=LOGS)
    plugin.log_file.unlink(missing_ok=True)
    cluster.nodes[NODE] = plugin
    certs = make_certs()
    found = Servers(cluster, node, certs)
    try:
        node.write("/etc/edgegpu/extender/ca.crt", certs.ca)
        node.write("/etc/edgegpu/extender/server.crt", certs.server.cert)
        node.write("/etc/edgegpu/extender/server.key", certs.server.key, mode=0o600)
        grant(cluster)
        plugin.configure(extender={"listen": FIRST})
        cluster.kubectl("create", "namespace", NAMESPACE)
        insert_cards(cluster, {NODE: cards(7611, 7611)})
        yield found
    finally:
        found.stop()
        found.extender.stop()
        plugin.stop()
        down(NODE)


@pytest.fixture
def both(servers: Servers) -> Iterator[Servers]:
    """Both servers as they should be; the first leads."""
    try:
        servers.extender.start()
        servers.first.start()
        servers.first.leads()
        servers.second.start()
        yield servers
    finally:
        servers.stop()
        servers.extender.stop()
        servers.cluster.clear(NAMESPACE)


def test_the_lead_changes_and_every_pod_has_the_card_that_an_extender_chose(both: Servers) -> None:
    made = both.make(count=6)
    both.first.kill()
    made += both.make(count=6)
    both.second.leads()
    both.run(made)
    both.first.start()
    made += both.make(count=3)
    both.second.stop()
    both.first.leads()
    made += both.make(count=3)  # the first's without doubt: the second may have bound all before
    both.run(made)
    assert len(wait_consistent(both.cluster)) == len(made)
    told = (both.cluster.nodes[NODE].plugin_log(), both.extender.log.read_text())
    first, second = (_BOUND.findall(log) for log in told)
    assert first
    assert second
    assert (len(set(first)), len(set(second))) == (len(first), len(second))
    # What the leader before had just sent, the next one finds bound as it should be: in both logs, on the same cards.
    # A server that comes to lead reads the pods once before its first binding; afterwards bind asks for no list. The
    # second gives the Lease back when it is stopped: a binding at that moment finds another term and reads them again.
    reread = "listing the pods before the next binding: the scheduler's lead has changed"
    lists = [log.count(reread) for log in told]
    assert lists[0] == 2
    assert lists[1] in {1, 2}
    chosen = set(first) | set(second)
    assert len(chosen) == len(made)
    assert {name for name, _ in chosen} == {f"{NAMESPACE}/{name}" for name in made}


def test_a_leader_whose_extender_is_dead_places_no_pod_with_shares(both: Servers) -> None:
    both.extender.stop()
    both.first.stop()
    both.second.leads()
    (waits,) = both.make()
    said = both.cluster.wait_event(NAMESPACE, waits, "connection refused")
    assert "Insufficient" not in said
    (other,) = both.make(memory=0, core=0)
    both.cluster.wait_phase(NAMESPACE, other, "Running")
    assert "nodeName" not in both.cluster.the_pod(NAMESPACE, waits)["spec"]
    both.first.start()
    both.second.stop()
    both.first.leads()
    both.run([waits])


def test_a_leader_without_our_file_binds_blind_and_the_installation_is_not_complete(both: Servers) -> None:
    cluster = both.cluster
    both.run(both.make(count=2, memory=20))
    both.stop()
    both.blind.start()
    both.blind.leads()
    (blind,) = both.make(memory=12)  # 9 units are free on either card, 18 in all

    def bound() -> bool:
        return "nodeName" in cluster.the_pod(NAMESPACE, blind)["spec"]

    wait_until(bound, what="the scheduler without an extender binds")
    cluster.wait_event(NAMESPACE, blind, "needs 12 vcuda-memory on one card")  # refused by the plugin
    cluster.wait_phase(NAMESPACE, blind, "Failed")  # nobody would make it again elsewhere, and it holds nothing so
    cluster.kubectl("annotate", "node", NODE, "edgegpu.io/extender=1.0", "--overwrite")
    second = {"name": "second", "labels": {"node-role.kubernetes.io/control-plane": ""}}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": second})
    try:
        (lacks,) = completeness(cluster.get("nodes")["items"], version="1.0")
        assert lacks.startswith("server second lacks the extender: whenever its scheduler leads")
        cluster.kubectl("annotate", "node", "second", "edgegpu.io/extender=1.0")
        assert completeness(cluster.get("nodes")["items"], version="1.0") == []
    finally:
        cluster.kubectl("delete", "node", "second")
