"""A cloud with its console and a box with the real agent, both in a k3s node's namespaces; and a browser there."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.limitsaccount import KUBECONFIG
from e2e.plugin_node import CONFIG, DRIVER_ROOT
from kits.browser import need_chromium
from kits.cloudcli import ok
from kits.mqtt import need_mosquitto
from lab.labrun import HERE, wait_until

from edgegpu_sim.demo.box import box
from edgegpu_sim.demo.processes import CommandOutcome, Processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2e.k3s import K3s
    from e2e.plugin_node import PluginNode

    from edgegpu_sim.demo.box import DemoBox

HTTPS_PORT, CONSOLE_PORT, BROKER_PORT, CONTROLLER_PORT = 18_443, 18_444, 18_883, 18_884
"""Ports in the node's own network: nobody else is there."""

INSTALLER = """#!/bin/sh
# In the place of install.sh: what it installs lies on this node already. The enrolment is the real one.
exec {python} -m edgegpu_agent.cli.app agent enrol "$@" --root {root}
"""


class NodeProcesses(Processes):
    """Processes in a node's namespaces."""

    def __init__(self, node: str, folder: Path) -> None:
        super().__init__(folder, {})
        self._prefix = (HERE / "k3sdirect", "exec", node, "env")

    def start(self, name: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
        super().start(name, self._inside(command, more))

    def call(self, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> CommandOutcome:
        return super().call(self._inside(command, more))

    def _inside(self, command: Sequence[str | Path], more: Mapping[str, str] | None) -> list[str | Path]:
        return [*self._prefix, *(f"{name}={value}" for name, value in (more or {}).items()), *command]


class K3sBed:
    """A node of the cluster as the bed of a box: its `edgegpu` starts and stops the plugin there."""

    def __init__(self, k3s: K3s, node: PluginNode, folder: Path, *, units: int, core: int) -> None:
        self._k3s, self._plugin = k3s, node
        self._offered = (units, core)
        self.node, self.folder = node.name, folder
        self.socket, self.driver = Path("/run/edgegpu/plugin.sock"), Path(DRIVER_ROOT)
        self.runtime, self.proc = Path("/run/k3s/containerd/containerd.sock"), Path("/proc")
        self.config, self.kubeconfig = node.lab.path(CONFIG), node.lab.path(KUBECONFIG)

    def start(self) -> None:
        self._plugin.start()
        self._k3s.wait_allocatable(self.node, *self._offered)

    def stop(self) -> None:
        self._plugin.stop()


class ConsoleNode:
    """The cloud: broker, controller and console; and one box that has not enrolled yet."""

    url = f"https://127.0.0.1:{CONSOLE_PORT}"

    def __init__(self, folder: Path, processes: NodeProcesses) -> None:
        self.folder, self._processes = folder / "cloud", processes
        self.bundle = folder / "bundle"

    def start(self, installer: str) -> None:
        """Make a controller, and start it; boxes get `installer` as install.sh."""
        ports = ("--https-port", str(HTTPS_PORT), "--console-port", str(CONSOLE_PORT))
        broker = ("--broker", f"127.0.0.1:{BROKER_PORT}", "--controller-port", str(CONTROLLER_PORT))
        ok("init", "--name", "127.0.0.1", *ports, *broker, folder=self.folder)
        self.bundle.mkdir()
        (self.bundle / "install.sh").write_text(installer)
        (self.bundle / "SHA256SUMS").write_text(f"{hashlib.sha256(installer.encode()).hexdigest()}  install.sh\n")
        self._processes.start("broker", [need_mosquitto(), "-c", self.folder / "broker/mosquitto.conf"])
        serve = ("serve", "--folder", str(self.folder), "--bundle", str(self.bundle))
        self._processes.start("cloud", [sys.executable, "-m", "edgegpu_cloud.cli.app", *serve])
        for port in (HTTPS_PORT, CONSOLE_PORT):
            asked = ["curl", "-fsSk", f"https://127.0.0.1:{port}/healthz"]
            wait_until(lambda asked=asked: self._processes.call(asked).status == 0, what="the cloud serves")  # type: ignore[misc]  # mypy cannot infer a default's type

    def read(self, *words: str) -> Any:  # noqa: ANN401  (JSON)
        return ok(*words, "--json", folder=self.folder).json

    def first_link(self) -> str:
        """Return the link of the first administrator."""
        return str(self.read("people", "link")["link"])


def chromium_in(node: str, folder: Path) -> str:
    """Return a program that runs Chromium in a node's network; Playwright's pipe to it passes through."""
    program = folder / "chromium"
    program.write_text(f'#!/bin/sh\nexec {HERE / "k3sdirect"} exec {node} {need_chromium()} "$@"\n')
    program.chmod(0o755)
    return str(program)


@contextmanager
def console_node(
    k3s: K3s, node: PluginNode, folder: Path, *, units: int, core: int
) -> Iterator[tuple[ConsoleNode, DemoBox]]:
    """Yield a cloud that serves and a box of it, whose cards offer so many units and so much core."""
    with ExitStack() as stack:
        logs = folder / "logs"
        logs.mkdir()
        processes = stack.enter_context(NodeProcesses(node.name, logs))
        bed = K3sBed(k3s, node, folder, units=units, core=core)
        there = stack.enter_context(box(bed, processes, lambda _: None))
        cloud = ConsoleNode(folder, processes)
        cloud.start(INSTALLER.format(python=sys.executable, root=there.root))
        yield cloud, there


def paste(node: PluginNode, there: DemoBox, line: str) -> str:
    """Paste a line on the box as root; return what it prints."""
    path = f"PATH={there.root / 'bin'}:{os.environ['PATH']}"
    return node.lab.exec("env", path, "NOTIFY_SOCKET=", "bash", "-c", f"set -o pipefail; {line}", timeout_s=60).stdout


def limits_of(k3s: K3s, namespace: str, app: str) -> dict[str, str]:
    """Return the limits of a Deployment's container, as the cluster has them."""
    found = k3s.get("deployment", app, namespace=namespace)["spec"]["template"]["spec"]["containers"][0]
    limits: dict[str, str] = json.loads(json.dumps(found["resources"].get("limits", {})))
    return limits
