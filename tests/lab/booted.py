"""What a booted machine of the lab can do, a box in namespaces and a virtual machine alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lab.labrun import Completed, Process


class BootedMachine(Protocol):
    """Debian with systemd as its PID 1, a disk of its own, and k3s as a unit."""

    @property
    def name(self) -> str:
        """Its host name, which is its node's."""

    @property
    def on_lan(self) -> tuple[str, ...]:
        """What to put before a command of this machine, so that it runs on the machine's LAN as 10.89.0.1."""

    def up(self, *, image: str = "base") -> None:
        """Power on, the first time on a copy of that image."""

    def up_k3s(self) -> None:
        """Power on with k3s, and wait until the node is Ready."""

    def ready(self, *, timeout_s: int = 120) -> None:
        """Wait for a Ready of the node that is younger than this call."""

    def exec(self, *cmd: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run cmd as root in the machine to its end."""

    def popen(self, *cmd: str, env: Mapping[str, str] | None = None, log: Path | None = None) -> Process:
        """Start cmd in the machine and let it run."""

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run `k3s kubectl` in the machine."""

    def push(self, *sources: Path, to: str) -> None:
        """Copy files and folders into the machine's folder."""

    def reboot(self) -> None:
        """Do an orderly `systemctl reboot`, and wait until the next boot is finished."""

    def cut(self) -> None:
        """Cut the power; the machine stays off."""

    def off(self) -> None:
        """Power off in an orderly way."""

    def save(self, image: str) -> None:
        """Keep the machine's disk as an image."""

    def network(self, *, plugged: bool) -> None:
        """Pull the network cable, or plug it in."""

    def down(self) -> None:
        """Remove the machine."""
