"""Boxes that are agents: the real process over a folder each, in one cloud; what they have on their disk can be read.

The plugin and the installer have stand-ins: a node without systemd has nothing to install on. The plugin's is a socket
of this process, the installer's a shell script that writes the configuration, as the real one would.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from kits.agentyaml import written
from kits.cloudcli import ok
from kits.mqtt import need_mosquitto, wait_for

from edgegpu_base.http_unix import LocalServer, Response
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_sim.demo.controller import DemoController
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILURE = "the plugin does not come up with it"
ALL_THERE_S = 120.0

_FOLDERS = ("etc/edgegpu", "etc/systemd/system", "var/lib/edgegpu/tx", "run/edgegpu", "bin")
_PROGRAMS = {
    "systemctl": """\
for unit; do
    case $unit in *.service) printf 'Id=%s\\nLoadState=loaded\\nActiveState=active\\n\\n' "$unit" ;; esac
done""",
    "nvidia-smi": "exit 9",
    "edgegpu": f"""\
[ "$1" = install ] || {{ echo '{{}}'; exit 0; }}
policy=
while [ $# -gt 0 ]; do
    [ "$1" != --policy ] || policy=$2
    shift
done
echo "$policy" >> "$BOX/asked"
if [ -e "$BOX/fails" ]; then
    echo '{{"state": "ROLLED_BACK", "why": "{FAILURE}"}}'
    exit 0
fi
printf 'version: 1\\nplacement: {{policy: %s}}\\n' "$policy" > "$BOX/etc/edgegpu/plugin.yaml"
echo '{{"state": "COMMITTED", "changed": true}}'""",
}


class AgentBox:
    """One box: its folder, and the stand-in of its plugin."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root
        layout = Layout(root)
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n")
        (layout.units / PLUGIN_UNIT).touch()
        self._config = layout.plugin_yaml
        self._config.write_text("version: 1\nplacement: {policy: first-fit}\n")
        for program, script in _PROGRAMS.items():
            path = root / "bin" / program
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        self._server = LocalServer(layout.plugin_socket, self._answer, owner="stand-in of a plugin")
        self._server.open()
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()

    @property
    def policy(self) -> str:
        """The placement policy in the plugin's configuration."""
        return str(yaml.safe_load(self._config.read_text())["placement"]["policy"])

    @property
    def asked(self) -> list[str]:
        """The policies that the installer was asked for, in their order."""
        path = self.root / "asked"
        return path.read_text().split() if path.exists() else []

    def fail(self) -> None:
        """Let every change from now on be undone by the installer."""
        (self.root / "fails").touch()

    def close(self) -> None:
        """End the plugin's stand-in."""
        self._server.stop()
        self._thread.join()

    def environment(self) -> dict[str, str]:
        """Return what the agent's process has beside this process's environment."""
        path = f"{self.root / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "BOX": str(self.root), "NOTIFY_SOCKET": ""}

    def _answer(self, target: str) -> Response:
        del target
        card = {"uuid": f"GPU-{self.name}", "index": "0", "name": "NVIDIA Tesla P4", "units": 29, "healthy": True}
        document = {
            "version": "0",
            "node": self.name,
            "role": "server",
            "unit_mib": 256,
            "policy": self.policy,
            "cards": [card],
            "pods": [],
            "api": {"synced": True},
            "kubelet": {"registered": True},
            "driver": {"version": "560.35.03", "problem": ""},
        }
        return Response(200, json.dumps(document).encode())


class AgentFleet:
    """A cloud with its broker, controller and console as processes, and boxes; a context manager."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._stack = folder, ExitStack()
        self.boxes = {name: AgentBox(name, folder / name) for name in names}
        logs = folder / "logs"
        logs.mkdir()
        self._processes = self._stack.enter_context(Processes(logs, {}))
        self.agents = self._stack.enter_context(AgentProcesses(logs, {}))
        port = free_port()
        self.url, self._cloud = f"https://127.0.0.1:{port}", folder / "cloud"
        self._controller = DemoController(
            self._cloud, self._processes, lambda _: None, mosquitto=need_mosquitto(), console_port=port
        )

    def __enter__(self) -> Self:
        try:
            self._controller.start()
            for box in self.boxes.values():
                self._belongs(box)
                self.agents.begin(box)
            wait_for(self._all_there, what="all boxes have reported their cards", timeout_s=ALL_THERE_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and the stand-ins of the plugins."""
        self._stack.close()
        for box in self.boxes.values():
            box.close()

    def read(self, *words: str) -> Any:  # noqa: ANN401  (JSON)
        """Return what `edgegpu-cloud` prints."""
        return ok(*words, "--json", folder=self._cloud).json

    def first_link(self) -> str:
        """Return the link of the first administrator."""
        return str(self.read("people", "link")["link"])

    def _belongs(self, box: AgentBox) -> None:
        line = self.read("enrol", "--name", box.name)
        (box.root / "etc/edgegpu/agent.yaml").write_text(written(line["url"], line["ca_sha256"]))
        (box.root / "etc/edgegpu/cloud-token").write_text(line["token"])

    def _all_there(self) -> bool:
        there = [box for box in self.read("boxes") if box["online"] and box["capacity"]]
        return len(there) == len(self.boxes)


class AgentProcesses(Processes):
    """The agents' processes."""

    def begin(self, box: AgentBox) -> None:
        """Start a box's agent."""
        program = ("--edgegpu", str(box.root / "bin/edgegpu"))
        command = [sys.executable, "-m", "edgegpu_agent", "--root", str(box.root), *program]
        self.start(box.name, command, box.environment())

    def rss_mib(self) -> list[float]:
        """Return the resident memory of each, in MiB."""
        return [_status_kib(process.pid, "VmRSS") / 1024 for process in self._running.values()]

    def cpu_s(self) -> float:
        """Return the CPU seconds of all so far, without those of programs that they ran."""
        tick = os.sysconf("SC_CLK_TCK")
        stats = [Path(f"/proc/{process.pid}/stat").read_text() for process in self._running.values()]
        fields = [text.rpartition(")")[2].split() for text in stats]
        return sum(int(one[11]) + int(one[12]) for one in fields) / tick


def _status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
