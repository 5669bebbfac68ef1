"""The node that churns: a k3s of the lab with three unequal cards, and edgegpu's process or processes in it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from churn.api import NAMESPACE, Api
from churn.arithmetic import WHOLE, Amounts
from e2e.apireads import ApiReads
from e2e.cluster import add_extender, grant
from e2e.k3s import EXTENDER, K3s
from e2e.plugin_node import DRIVER_ROOT, PluginNode, cards
from lab.labkit import LabError, Node, Process, down, up_server, wait_until

ROOT = Path(__file__).resolve().parents[2]
NAME = "churn-node"
SIZES_MIB = (7611, 15360, 24259)
UNIT_MIB = 256
RECOVER_S = 12.0
"""So long after an error a card is offered again; users have five minutes."""
_PROXY = "/run/edgegpu-test-api.sock"
_EXTENDER_CONFIG, _EXTENDER_RUN = "/etc/edgegpu/extender-only.yaml", "/run/edgegpu-extender"


class ChurnNode(PluginNode):
    """A node whose processes may be those of another checkout, such as one with a fault."""

    product: Path | None = None

    def command(self) -> tuple[str, ...]:
        return (*_of(self.product), *super().command())


def _of(product: Path | None) -> tuple[str, ...]:
    """Return what puts another checkout's modules before ours."""
    path = ":".join(str(folder) for folder in (product / "plugin", product / "base")) if product else ""
    return ("env", f"PYTHONPATH={path}") if path else ()


class Bed:
    """The cluster, its one node, and edgegpu there: one process at first, plugin and extender apart later."""

    def __init__(self, server: Node, cluster: K3s, node: ChurnNode, logs: Path) -> None:
        """Take over what `bed` has set up."""
        self.server, self.cluster, self.node = server, cluster, node
        self.root = server.path("/")
        self.proxy = server.path(_PROXY)
        self.api = Api(self.proxy)
        self.apart = False
        self.totals = {card.uuid: Amounts(card.mib // UNIT_MIB, WHOLE) for card in cards(*SIZES_MIB)}
        self._log = logs / "extender.log"
        self._extender: Process | None = None

    def start(self) -> None:
        """Start edgegpu and wait until all cards are offered."""
        self.node.start()
        self.wait_offered(set())

    def part(self) -> None:
        """Put two processes in the place of one, as a cluster with agents has them: plugin, and extender alone."""
        self.node.stop()
        self.apart, self.node.role = True, "agent"
        configure(self.node)
        self.start_extender()
        self.start_plugin()

    def start_plugin(self) -> None:
        """Start the plugin's process."""
        self.node.start()

    def kill_plugin(self) -> None:
        """Kill -9 the plugin's process, of which the extender may be a part."""
        self.node.kill()

    def signal_plugin(self, number: signal.Signals) -> None:
        """Send a signal to the plugin's process."""
        self.node.send_signal(number)

    def start_extender(self) -> None:
        """Start the extender's own process, and wait until its port is open."""
        config = {
            "version": 1,
            "node_name": self.node.name,
            "role": "extender-only",
            "extender": {"listen": EXTENDER},
            "paths": {"run": _EXTENDER_RUN, "state": f"/var/lib{_EXTENDER_RUN.removeprefix('/run')}"},
        }
        self.server.write(_EXTENDER_CONFIG, yaml.safe_dump(config))
        command = (*_of(self.node.product), sys.executable, "-m", "edgegpu_plugin", "--config", _EXTENDER_CONFIG)
        self._extender = self.server.popen(*command, log=self._log)
        status = self.root / _EXTENDER_RUN.lstrip("/") / "plugin.sock"
        wait_until(lambda: _answers(status), what=f"the extender answers ({self._log})")

    def kill_extender(self) -> None:
        """Kill -9 the extender's own process."""
        if self._extender is not None:
            self._extender.kill()
            self._extender.wait(20)
            self._extender = None

    def wait_offered(self, out: set[str], timeout_s: float = 90.0) -> None:
        """Wait until the node offers at least the cards that are not out."""
        memory = sum(total.memory for card, total in self.totals.items() if card not in out)

        def probe() -> bool:
            return self.cluster.allocatable(self.node.name)[0] >= memory

        wait_until(probe, what=f"{self.node.name} offers {memory} units", timeout_s=timeout_s, every_s=0.3)

    def stop(self) -> None:
        """End edgegpu."""
        with suppress(Exception):
            self.node.send_signal(signal.SIGCONT)
        with suppress(Exception):
            self.kill_extender()
        with suppress(Exception):
            self.node.stop()


def configure(node: PluginNode) -> None:
    """Write the plugin's configuration for its role: defaults, but for times that fit a short run."""
    driver = {"root": DRIVER_ROOT, "poll_s": 1, "recover_s": RECOVER_S}
    isolation = {"libraries": str(ROOT / "build/limiter")}
    extender = {} if node.role == "agent" else {"extender": {"listen": EXTENDER}}
    node.configure(driver=driver, isolation=isolation, **extender)


@contextmanager
def bed(logs: Path, product: Path | None = None) -> Iterator[Bed]:
    """Yield the bed with edgegpu running; everything is taken down afterwards."""
    down(NAME)
    server = up_server(NAME)
    cluster = K3s(server)
    node_bed: Bed | None = None
    try:
        add_extender(cluster)
        server.restart()
        node = ChurnNode(server, role="server", build=ROOT / "build/simdriver", logs=logs)
        node.product = product
        cluster.nodes[NAME] = node
        grant(cluster)
        configure(node)
        node.insert_cards(cards(*SIZES_MIB))
        cluster.reads = ApiReads(server, logs / "proxy.log")
        cluster.kubectl("create", "namespace", NAMESPACE)
        node_bed = Bed(server, cluster, node, logs)
        node_bed.start()
        yield node_bed
    finally:
        (logs / "k3s.log").write_text(_log_of(server))
        if node_bed is not None:
            node_bed.stop()
        if cluster.reads is not None:
            cluster.reads.stop()
        down(NAME)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(path))
        except OSError:
            return False
    return True


def _log_of(server: Node) -> str:
    try:
        return server.log()
    except LabError as error:
        return str(error)
