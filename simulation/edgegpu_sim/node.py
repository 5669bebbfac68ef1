"""One node of the embedded cluster: its folders, driver and kubelet, and the real plugin process."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edgegpu_sim.api import Json, Registry
from edgegpu_sim.api.objects import merge
from edgegpu_sim.cards import SimCard
from edgegpu_sim.driver import SimDriver
from edgegpu_sim.errors import SimError
from edgegpu_sim.kubelet.devicemanager import CHECKPOINT
from edgegpu_sim.kubelet.kubelet import KubeletSettings, SimKubelet
from edgegpu_sim.kubelet.podworker import PodTimings
from edgegpu_sim.kubelet.runtime import Runtime

_STOP_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The specification of a simulated node."""

    name: str
    cards: Sequence[SimCard] = ()
    role: str = "server"
    labels: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """Values that are merged over the plugin's generated configuration."""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of KubeletSettings other than node, folder and labels."""
    pace: PodTimings = field(default_factory=PodTimings)
    has_own_proc: bool = False
    """Whether the plugin looks processes up in the node's `proc`, which is empty at first: not in this machine's."""


class SimNode:
    """A simulated node, with all its files in one folder with a short path (a socket's path holds 107 characters)."""

    def __init__(self, spec: NodeSpec, folder: Path, *, registry: Registry, order: random.Random) -> None:
        self.spec = spec
        self.name = spec.name
        self.folder = folder
        self.cdi_folder = folder / "cdi"
        self.run_folder = folder / "run"
        self.proc = folder / "proc"
        self.config_path = folder / "plugin.yaml"
        self.log_path = folder / "plugin.log"
        self.kubeconfig_path = folder / "kubeconfig"
        self._order = order
        folder.mkdir(parents=True)
        self.driver = SimDriver.create(folder / "d", list(spec.cards)) if spec.cards else None
        self.runtime = Runtime(folder / "c", cdi_folders=[self.cdi_folder])
        settings = KubeletSettings(
            node=spec.name, folder=folder / "k", labels=spec.labels, pace=spec.pace, **dict(spec.kubelet)
        )
        self.kubelet = SimKubelet(settings, registry=registry, runtime=self.runtime, order=order)
        self.plugin: subprocess.Popen[bytes] | None = None

    def write_config(self, *, extender: Mapping[str, Any]) -> None:
        """Write the plugin's configuration file."""
        generated = {
            "version": 1,
            "node_name": self.name,
            "role": self.spec.role,
            "kubelet": {"folder": str(self.folder / "k"), "device_plugins": str(self.folder / "k" / "device-plugins")},
            "kubernetes": {"kubeconfig": str(self.kubeconfig_path)},
            "driver": {"root": str(self.folder / "d"), "injection": "cdi", "cdi_folder": str(self.cdi_folder)},
            "isolation": {"mode": "none"},  # links in the place of mounts: the limiter would find no files
            "extender": dict(extender),
            "paths": {"state": str(self.folder / "state"), "run": str(self.run_folder)},
            "log_level": "debug",
        }
        self.config_path.write_text(yaml.safe_dump(merge(generated, dict(self.spec.config)), sort_keys=False))

    def start_plugin(self) -> None:
        """Start the real plugin process; its output is appended to the log file.

        Raises:
            SimError: the plugin runs already.
        """
        if self.plugin is not None and self.plugin.poll() is None:
            raise SimError(f"cannot start the plugin of {self.name}: it runs already")
        for folder in (self.cdi_folder, self.run_folder, self.folder / "state"):
            folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "edgegpu_plugin", "--config", str(self.config_path)]
        if self.spec.has_own_proc:
            self.proc.mkdir(exist_ok=True)
            command += ["--proc", str(self.proc)]
        with self.log_path.open("ab") as log:
            self.plugin = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_plain_env())

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the plugin's log."""
        return "\n".join(self.log_path.read_text().splitlines()[-lines:]) if self.log_path.exists() else "(nothing)"

    def kill_plugin(self, number: int = signal.SIGKILL) -> int | None:
        """Send the plugin a signal, wait for its end and return its exit status; None when it did not run."""
        plugin, self.plugin = self.plugin, None
        if plugin is None:
            return None
        if plugin.poll() is None:
            plugin.send_signal(number)
        try:
            return plugin.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            plugin.kill()
            plugin.wait()
            raise SimError(f"cannot end the plugin of {self.name}: it ignored signal {number}") from None

    def reboot(self) -> None:
        """Restart the node: all containers, /run and the CDI folder are lost, other files stay."""
        had_plugin = self.plugin is not None
        self.kill_plugin()
        self.kubelet.stop()
        self.runtime.forget_all()
        for folder in (self.cdi_folder, self.run_folder):
            shutil.rmtree(folder, ignore_errors=True)
        if had_plugin:
            self.start_plugin()
        self.kubelet.start()

    def restart_kubelet(self) -> None:
        """Kill kubelet and start it again; containers go on."""
        self.kubelet.stop()
        self.kubelet.start()

    def checkpoint(self) -> Json:
        """Return kubelet's checkpoint as JSON; empty while there is no file."""
        path = self.kubelet.devices_folder / CHECKPOINT
        found: Json = json.loads(path.read_text()) if path.exists() else {}
        return found

    def stop(self) -> None:
        """End all processes of the node, kubelet first: gRPC writes to stderr when its server closes a connection."""
        self.kubelet.stop()
        if self.plugin is not None:
            try:
                self.kill_plugin(signal.SIGTERM)
            except SimError:
                self.plugin = None


def _plain_env() -> dict[str, str]:
    """Return the environment of a service, without a desktop's variables and other drivers' libraries."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONWARNINGS")
    return {key: value for key, value in os.environ.items() if key in kept}
