"""A booted box as a node under test: k3s and edgegpu-plugin as units, the relocatable environment under /opt."""

import sys
from pathlib import Path
from typing import Any

from e2e.plugin_node import DRIVER_ROOT, PluginNode
from lab.booted import BootedMachine
from lab.labrun import HERE, Completed, LabError, Process, run, wait_until
from lab.simcards import insert_cards, push_simulation

OPT = "/opt/edgegpu"
PERSISTENT_ROOT = "/var/lib/edgegpu-sim"


class BoxNode:
    """Gives a Box the surface that PluginNode and K3s use of a node in namespaces."""

    def __init__(self, box: BootedMachine) -> None:
        self.box = box
        self.name = box.name

    def path(self, inside: str | Path) -> Path:
        """Return where this machine sees a file of the running box."""
        root = run([HERE / "box", "root", self.name], timeout_s=60).stdout.strip()
        return Path(root + str(inside).replace("/var/run/", "/run/", 1))

    def write(self, inside: str, text: str, *, mode: int = 0o644) -> Path:
        """Write a file of the box."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run k3s kubectl in the box."""
        return self.box.kubectl(*args, input=input, check=check, timeout_s=timeout_s)

    def exec(self, *cmd: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run a program in the box to its end."""
        return self.box.exec(*cmd, input=input, check=check, timeout_s=timeout_s)

    def popen(self, *cmd: str, log: Path | None = None) -> Process:
        """Start a program in the box and let it run."""
        return self.box.popen(*cmd, log=log)

    def restart(self) -> None:
        """Restart k3s and wait until the node is Ready."""
        self.box.exec("systemctl", "restart", "--no-block", "k3s")
        self.box.ready()

    def kill(self) -> None:
        """Kill -9 k3s; its unit starts it again."""
        self.box.exec("systemctl", "kill", "-s", "KILL", "--kill-who=main", "k3s")

    def ready(self) -> None:
        """Wait for a Ready that is younger than this call."""
        self.box.ready()

    @property
    def ip(self) -> str:
        """The API server is on the same machine."""
        return "127.0.0.1"


class BoxPlugin(PluginNode):
    """The plugin as its unit."""

    def __init__(self, node: BoxNode, *, environment: Path, logs: Path) -> None:
        super().__init__(node, role="server", build=environment, logs=logs)
        self.box = node.box
        self.has_plugin = True
        self._environment = environment

    def install(self, cards: dict[str, int]) -> None:
        """Put the environment, the unit and a simulated driver into the box."""
        self.box.exec("mkdir", "-p", f"{OPT}/test")
        self.box.push(*sorted(self._environment.iterdir()), to=f"{OPT}/test")
        self.box.exec("ln", "-sfn", "test", f"{OPT}/current")
        for unit in ("edgegpu-plugin.service", "edgegpu-selftest.service"):
            self.box.exec("cp", f"{OPT}/current/systemd/{unit}", "/etc/systemd/system/")
        push_simulation(self.box)
        insert_cards(self.box, PERSISTENT_ROOT, cards, packages=f"{OPT}/current/lib", python="python3")
        self.box.exec("systemctl", "daemon-reload")

    @property
    def running(self) -> bool:
        """Its unit keeps it running."""
        return True

    def start(self) -> None:
        """Start and enable the unit, and wait until the plugin answers."""
        self.box.exec("systemctl", "enable", "--now", "edgegpu-plugin")
        wait_until(self.status, what=f"the plugin in {self.name} answers")

    def stop(self) -> None:
        """Stop the unit."""
        self.box.exec("systemctl", "stop", "edgegpu-plugin")

    def kill(self) -> None:
        """Kill -9 the plugin; its unit starts it again."""
        self.box.exec("systemctl", "kill", "-s", "KILL", "edgegpu-plugin")

    def plugin_log(self) -> str:
        """Return what the unit has logged."""
        return self.box.exec("journalctl", "-u", "edgegpu-plugin", "--no-pager", "-o", "cat").stdout


def environment(root: Path) -> Path:
    """Make the relocatable environment and return it."""
    run(["make", "-C", str(root), "env"], timeout_s=600)
    made = root / "build/env/edgegpu"
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    if (made / "lib/python-version").read_text().strip() != wanted:
        raise LabError(f"{made} is not for Python {wanted}")
    return made


def settings() -> dict[str, Any]:
    """Return the driver section for a driver that survives a reboot."""
    assert DRIVER_ROOT != PERSISTENT_ROOT
    return {"root": PERSISTENT_ROOT}
