"""The demo's bed without requirements: simulated cards, an embedded cluster, and the real plugin process."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from edgegpu_agent.cli.clients.document import StatusDocument
from edgegpu_agent.cli.clients.plugin import SOCKET_NAME, NotRunningError, fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_agent.demo.model import LABEL, DemoError, DemoService, Json, deployment
from edgegpu_agent.demo.real import booked_cards
from edgegpu_plugin.config import schema
from edgegpu_sim.api.objects import amount
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import SimDriverError, make_card
from edgegpu_sim.errors import SimError
from edgegpu_sim.kubelet.runtime_server import runtime_socket
from edgegpu_sim.node import NodeSpec, SimNode

NAMESPACE = "baetyl-edge"
_NODE = "box-1"
_START_S = 20.0
_LOOK_S = 0.1
_LOG_LINES = 15
_NAMES = {24259: "NVIDIA TITAN RTX", 7611: "NVIDIA Tesla P4", 4096: "NVIDIA GeForce GTX 1650"}


def _at_once(_: str) -> None:
    """Change something without a pause."""


class EmbeddedBed:
    """The bed of one node in an embedded cluster, with its plugin."""

    namespace = NAMESPACE
    policy = ""
    timeout_s = 20.0

    def __init__(self, cluster: EmbeddedCluster, node: str = _NODE) -> None:
        self._cluster = cluster
        self.node = node
        """The name of the node."""
        self._sim: SimNode = cluster.nodes[node]
        self.folder = cluster.folder
        """The cluster's folder, which is removed at the end."""
        self.socket = self._sim.run_folder / SOCKET_NAME
        self.config = self._sim.config_path
        """The plugin's configuration."""
        self.kubeconfig = cluster.kubeconfig_path
        """The path of a kubeconfig with all rights in the cluster."""
        self.runtime = self._sim.folder / "cri"
        """The socket of the node's container runtime."""
        self.driver = self._sim.folder / "d"
        """The root of the simulated driver."""
        self.proc = self._sim.proc
        """Where the plugin looks up the processes of containers."""
        self.before_change: Callable[[str], None] = _at_once
        """Gets what is asked for next, and returns when it may be."""
        self._resources: dict[str, str] = {}

    def start(self) -> None:
        """Start the plugin and wait until the node offers what its cards have.

        Raises:
            DemoError: the node does not offer it in time, or the plugin ends.
        """
        self._cluster.start_plugin(self.node)
        try:
            self._cluster.wait(self._offers, timeout_s=_START_S, what="the node to offer its cards")
        except SimError as error:
            raise DemoError(f"cannot start the plugin: {error}{self.log_end()}") from error

    def stop(self) -> None:
        """Stop the plugin as systemd would; pods that have a card go on."""
        self._sim.kill_plugin(signal.SIGTERM)

    @property
    def runs(self) -> bool:
        """Whether the plugin runs."""
        return self._sim.plugin is not None and self._sim.plugin.poll() is None

    @property
    def memory_resource(self) -> str:
        """The name of the memory resource."""
        return self._resources["memory"]

    def manifest(self, service: DemoService) -> Json:
        """Return the service's Deployment; nothing pulls its image."""
        return deployment(service, namespace=NAMESPACE, resources=self._resources, image="app", annotations={}, more={})

    def apply(self, manifest: Json) -> None:
        """Create or change a Deployment."""
        limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        self.before_change(f"{manifest['metadata']['name']} asks for {limits[self.memory_resource]} units")
        self._cluster.apply(manifest)

    def delete(self, service: str) -> None:
        """Delete a service's Deployment; its pods follow."""
        self._cluster.delete("Deployment", NAMESPACE, service)

    def pods(self, service: str) -> list[Json]:
        """Return a service's pods."""
        return self._cluster.pods(NAMESPACE, f"{LABEL}={service}")

    def events(self, pod: Json) -> list[str]:
        """Return a pod's events."""
        return self._cluster.events(NAMESPACE, pod["metadata"]["name"])

    def sees(self, pod: Json) -> str:
        """Return what `nvidia-smi -L` prints in a pod's container."""
        done = self._cluster.exec(NAMESPACE, pod["metadata"]["name"], "nvidia-smi", "-L")
        return done.stdout + done.stderr

    def kubelet_says(self, pod: Json) -> frozenset[str] | None:
        """Return the cards that PodResources names for a pod."""
        return booked_cards(self._sim.kubelet.resources_folder / "kubelet.sock", pod)

    def status(self) -> StatusDocument:
        """Return the plugin's status document."""
        try:
            return fetch_status(self.socket)
        except CliError as error:
            raise DemoError(f"{error.text}{self.log_end()}") from error

    def pause(self) -> None:
        """Wait for a change in the API, or a moment; raise an error if the plugin has ended."""
        self._check_plugin()
        store = self._cluster.registry.store
        store.wait(store.version, _LOOK_S)

    def log_end(self) -> str:
        """Return the last lines of the plugin's log, as the end of an error's text."""
        log = self._sim.log_path
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        if not lines:
            return "\nthe plugin has logged nothing"
        return "\nthe end of the plugin's log:\n" + "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])

    def _check_plugin(self) -> None:
        plugin = self._sim.plugin
        if plugin is not None and (code := plugin.poll()) is not None:
            raise DemoError(f"cannot go on: the plugin ended with status {code}{self.log_end()}")

    def _offers(self) -> bool:
        self._check_plugin()
        try:
            status = fetch_status(self.socket)
        except NotRunningError:
            return False
        except CliError as error:
            raise DemoError(f"{error.text}{self.log_end()}") from error
        self._resources = dict(status.raw["resources"])
        node = self._cluster.get("Node", "", self.node) or {}
        offered = (node.get("status") or {}).get("allocatable") or {}
        units = sum(card.units for card in status.cards)
        wants = units > 0 or self._excludes
        return wants and amount(offered.get(self.memory_resource, 0)) == units and status.api_synced

    @property
    def _excludes(self) -> bool:
        """Whether the plugin's configuration excludes cards, perhaps all."""
        return bool(schema.load(self.config).exclude)


@contextmanager
def embedded(memories_mib: Sequence[int], *, policy: str, node: str = _NODE) -> Iterator[EmbeddedBed]:
    """Yield the bed of a cluster with one node and simulated cards of these sizes, and end it afterwards.

    Raises:
        DemoError: the simulated driver is not built, or a part of the cluster does not start.
    """
    cards = [make_card(index, _NAMES.get(mib, "NVIDIA GPU"), mib) for index, mib in enumerate(memories_mib)]
    try:
        settings = {"placement": {"policy": policy}}
        cluster = EmbeddedCluster([NodeSpec(name=node, cards=cards, config=settings, has_own_proc=True)])
    except SimDriverError as error:
        raise DemoError(str(error)) from error
    bed = EmbeddedBed(cluster, node)
    try:
        with cluster, runtime_socket(cluster.nodes[node].runtime, bed.runtime):
            bed.start()
            yield bed
    except SimError as error:
        raise DemoError(f"{error}{bed.log_end()}") from error
