"""What tests ask of the lab: k3s nodes in namespaces of this machine.

The script k3sdirect does the work; its head is its manual.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lab.labrun import HERE, Completed, LabError, Process, missing, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.booted import BootedMachine

__all__ = [
    "IMAGE",
    "PROGRAMS",
    "Completed",
    "LabError",
    "Node",
    "Process",
    "Programs",
    "down",
    "missing",
    "up_agent",
    "up_server",
    "wait_until",
]

IMAGE = "edgegpu-test:lab"
"""The image of the pods: busybox and glibc (glibc_image.sh); every node has it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A k3s node in namespaces: network, /run, /var/lib, /var/log, /etc of its own, all other files this machine's."""

    name: str
    server: str
    """The name of the server it belongs to; its own name for a server."""

    def _k3sdirect(self, verb: str, *args: str, timeout_s: float = 180.0) -> str:
        return run([HERE / "k3sdirect", verb, self.name, *args], timeout_s=timeout_s).stdout.strip()

    def exec(
        self,
        *cmd: str,
        input: str = "",  # noqa: A002 - subprocess's own word
        check: bool = True,
        timeout_s: float = 60.0,
    ) -> Completed:
        """Run cmd in the node, in the current folder, to its end.

        Raises:
            LabError: its exit status is not 0 (with check), or it takes longer than timeout_s.
        """
        args: list[str | Path] = [HERE / "k3sdirect", "exec", self.name, *cmd]
        return run(args, input=input, check=check, timeout_s=timeout_s)

    def popen(self, *cmd: str, env: Mapping[str, str] | None = None, log: Path | None = None) -> Process:
        """Start cmd in the node and let it run; env adds to this process's variables.

        Its output, both kinds, is appended to the file log; without log it is to be read from the Process's stdout.
        """
        return Process([HERE / "k3sdirect", "exec", self.name, *cmd], env=env or {}, log=log)

    def path(self, inside: str | Path) -> Path:
        """Return where this machine sees the node's file of that absolute path. Leads astray over absolute links."""
        text = str(inside)
        if text.startswith("/var/run/"):
            text = text.removeprefix("/var")
        return Path(self._k3sdirect("root") + text)

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run `k3s kubectl` with the administrator's rights, whichever node this is."""
        on_server = Node(self.server, self.server)
        return on_server.exec("k3s", "kubectl", *args, input=input, check=check, timeout_s=timeout_s)

    @property
    def ip(self) -> str:
        """The address on the nodes' LAN."""
        return self._k3sdirect("ip")

    @property
    def pid(self) -> int:
        """The process id of k3s, as this machine counts."""
        return int(self._k3sdirect("pidof"))

    def stop(self) -> None:
        """End k3s in an orderly way; containers live on."""
        self._k3sdirect("stop")

    def start(self) -> None:
        """Start k3s and wait until the node is Ready."""
        self._k3sdirect("start")

    def restart(self) -> None:
        """Do as `systemctl restart k3s` does, and wait until the node is Ready."""
        self._k3sdirect("restart")

    def kill(self) -> None:
        """Kill -9 k3s; it starts again after 5 s by itself (then: ready)."""
        self._k3sdirect("kill")

    def ready(self, timeout_s: int = 120) -> None:
        """Wait for a Ready that is younger than this call."""
        self._k3sdirect("ready", str(timeout_s), timeout_s=timeout_s + 30.0)

    def log(self) -> str:
        """Return what k3s has logged since `up`."""
        return self._k3sdirect("log")

    def write(self, inside: str, text: str, *, mode: int = 0o644) -> Path:
        """Write a file of the node, with its folders; return where this machine sees it."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


@dataclass(frozen=True, slots=True)
class Programs:
    """What a node runs on, as it says itself."""

    kubernetes: str
    containerd: str
    k3s: str
    cgroup: str
    system: str = ""
    """The distribution and the kernel of a machine that has its own; empty: this machine's."""

    @classmethod
    def of(cls, server: Node) -> Self:
        """Return what a running server runs on."""
        return cls._of(server, cgroup="v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1")

    @classmethod
    def of_machine(cls, machine: BootedMachine) -> Self:
        """Return what a running machine with a kernel of its own runs on."""
        mounted = machine.exec("stat", "-fc", "%T", "/sys/fs/cgroup").stdout.strip()
        programs = cls._of(machine, cgroup="v2" if mounted == "cgroup2fs" else "v1")
        info = _node_info(machine)
        return replace(programs, system=f"{info['osImage']}, kernel {info['kernelVersion']}")

    @classmethod
    def _of(cls, node: Node | BootedMachine, *, cgroup: str) -> Self:
        info = _node_info(node)
        return cls(
            kubernetes=info["kubeletVersion"].partition("+")[0],
            containerd=info["containerRuntimeVersion"].removeprefix("containerd://").removeprefix("v"),
            k3s="stand-in" if "stand-in" in node.exec("k3s", "--version").stdout else "k3s",
            cgroup=cgroup,
        )


def _node_info(node: Node | BootedMachine) -> dict[str, str]:
    """Return what a node's kubelet reports of itself."""
    found: dict[str, str] = json.loads(node.kubectl("get", "node", node.name, "-o", "json").stdout)["status"][
        "nodeInfo"
    ]
    return found


PROGRAMS: set[Programs] = set()
"""What the servers that this process has started run on."""


def up_server(name: str, *k3s_args: str) -> Node:
    """Start a k3s server in namespaces and wait until it is Ready (12 to 20 s)."""
    run([HERE / "k3sdirect", "up", name, *k3s_args], timeout_s=300.0)
    server = Node(name, name)
    PROGRAMS.add(Programs.of(server))
    return server


def up_agent(name: str, server: Node, *k3s_args: str) -> Node:
    """Start a second node that joins server over a LAN of their own, and wait until it is Ready (about 11 s)."""
    run([HERE / "k3sdirect", "up", name, "--agent-of", server.name, *k3s_args], timeout_s=300.0)
    return Node(name, server.name)


def down(*nodes: Node | str) -> None:
    """Remove nodes, a server's agents with it, without a trace; it is no error when one is not there."""
    for node in nodes:
        run([HERE / "k3sdirect", "down", node.name if isinstance(node, Node) else node], timeout_s=120.0)
