"""A k3s node with simulated cards and the real plugin process in it."""

import base64
import http.client
import json
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from e2e.machine import Machine
from lab.labkit import LabError, Process, wait_until

from edgegpu_core.ledger import CheckpointEntry, parse_checkpoint
from edgegpu_plugin.pb import PodDevices, PodResourcesCaller, channel
from edgegpu_sim.cards import SimVersions
from edgegpu_sim.driver import SimCard, SimDriver, make_card

DRIVER_ROOT = "/run/edgegpu-sim"
CONFIG = "/etc/edgegpu/plugin.yaml"
KUBELET = "/var/lib/kubelet"


def cards(*mib: int) -> tuple[SimCard, ...]:
    """Return simulated cards of these sizes."""
    return tuple(make_card(index, f"NVIDIA Tesla T{size}", size) for index, size in enumerate(mib))


class PluginNode:
    """One node, its simulated driver and its plugin process."""

    def __init__(self, lab: Machine, *, role: str, build: Path, logs: Path) -> None:
        self.lab = lab
        self.name = lab.name
        self.role = role
        self.log_file = logs / f"{lab.name}.log"
        self._build = build
        self._process: Process | None = None
        self.has_plugin = False
        """Whether a test has started its plugin and not stopped it; one that was killed is missed."""
        self.driver: SimDriver | None = None

    def lay_kubeconfig(self, *, server: str, ca: str, token: str) -> None:
        """Write the kubeconfig of a service account."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "k3s",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": "edgegpu", "user": {"token": token}}],
            "contexts": [{"name": "edgegpu", "context": {"cluster": "k3s", "user": "edgegpu"}}],
            "current-context": "edgegpu",
        }
        self.lab.write("/etc/edgegpu/kubeconfig", yaml.safe_dump(config), mode=0o600)

    def configure(self, **changes: dict[str, Any]) -> None:
        """Write the plugin's configuration; sections given are merged into the test's own."""
        config: dict[str, Any] = {
            "version": 1,
            "node_name": self.name,
            "role": self.role,
            "driver": {"root": DRIVER_ROOT, "poll_s": 1},
            "log_level": "debug",
        }
        for section, values in changes.items():
            config[section] = {**config.get(section, {}), **values}
        self.lab.write(CONFIG, yaml.safe_dump(config))

    def insert_cards(self, wanted: Sequence[SimCard], versions: SimVersions | None = None) -> None:
        """Lay the simulated driver with these cards; the plugin sees them at its next start."""
        root = self.lab.path(DRIVER_ROOT)
        root.mkdir(parents=True, exist_ok=True)
        self.driver = SimDriver.create(root, wanted, build=self._build, versions=versions)

    def command(self) -> tuple[str, ...]:
        """Return the plugin's command line, with the niceness that its unit has."""
        return ("nice", "-n", "-10", sys.executable, "-m", "edgegpu_plugin", "--config", CONFIG)

    def start(self) -> None:
        """Start the plugin process and wait until it answers."""
        self._process, self.has_plugin = self.lab.popen(*self.command(), log=self.log_file), True
        wait_until(self.status, what=f"the plugin on {self.name} answers ({self.log_file})")

    def stop(self) -> None:
        """End the plugin in an orderly way."""
        self.has_plugin = False
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def kill(self) -> None:
        """Kill -9 the plugin."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the plugin; nothing happens where none runs."""
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def running(self) -> bool:
        """Whether the test has the plugin running here."""
        return self._process is not None

    def status(self) -> dict[str, Any]:
        """Ask the plugin for its status document. Raises LabError while it does not answer."""
        link = http.client.HTTPConnection("localhost", timeout=5)
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.settimeout(5)
        try:
            link.sock.connect(str(self.lab.path("/run/edgegpu/plugin.sock")))
            link.request("GET", "/v1/status")
            answer: dict[str, Any] = json.loads(link.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"the plugin on {self.name} does not answer: {error}") from error
        finally:
            link.close()
        return answer

    def edgegpu(self, *args: str) -> Any:  # noqa: ANN401  (JSON)
        """Run the engineer's command line in the node and return its JSON."""
        done = self.lab.exec(sys.executable, "-m", "edgegpu_agent.cli.app", *args, "--json")
        return json.loads(done.stdout)

    def checkpoint(self) -> tuple[CheckpointEntry, ...]:
        """Read kubelet's device checkpoint."""
        path = self.lab.path(f"{KUBELET}/device-plugins/kubelet_internal_checkpoint")
        return parse_checkpoint(path.read_bytes()) if path.exists() else ()

    def pod_resources(self) -> list[PodDevices]:
        """Ask kubelet's PodResources."""
        with channel(str(self.lab.path(f"{KUBELET}/pod-resources/kubelet.sock"))) as link:
            return PodResourcesCaller(link).list(10)

    def plugin_log(self) -> str:
        """Return what the plugin has logged."""
        return self.log_file.read_text() if self.log_file.exists() else ""
