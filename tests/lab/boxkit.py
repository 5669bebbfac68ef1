"""Booted Debian boxes for tests: systemd as PID 1, a disk of their own, k3s as a unit.

The scripts box and k3sbox do the work; their heads are their manuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.labrun import HERE, Completed, LabError, Process, missing, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Box", "Completed", "LabError", "build", "missing", "wait_until"]


@dataclass(frozen=True, slots=True)
class Box:
    """A booted box by name (a lower-case letter, then up to 11 of a-z 0-9 -)."""

    name: str

    @property
    def on_lan(self) -> tuple[str, ...]:
        """What to put before a command of this machine, so that it runs on the boxes' LAN as 10.89.0.1."""
        return (str(HERE / "box"), "lab")

    def _box(self, verb: str, *args: str | Path, timeout_s: float = 180.0) -> str:
        return run([HERE / "box", verb, self.name, *args], timeout_s=timeout_s).stdout.strip()

    def up(self, *, image: str = "base") -> None:
        """Power on, without k3s; the first time on a copy of that disk image. Waits until the boot is finished."""
        self._box("up", image)

    def power_on(self) -> None:
        """Power on a box that has its disk; its systemd answers then, and the boot goes on."""
        run(["env", "BOX_WAIT=0", HERE / "box", "up", self.name], timeout_s=180.0)

    def boot_ended(self) -> None:
        """Wait until the boot is finished, whether all its units run or not."""
        self.exec("systemctl", "is-system-running", "--wait", check=False, timeout_s=120.0)

    def up_k3s(self, *, agent_of: Box | None = None) -> None:
        """Power on, install k3s where it is not, start its unit, wait until the node is Ready."""
        role = ["agent", agent_of.name] if agent_of else ["server"]
        run([HERE / "k3sbox", "up", self.name, *role], timeout_s=300.0)

    def kill_k3s(self) -> None:
        """Do what k3s's own k3s-killall.sh does: k3s and all pods end, the files stay."""
        run([HERE / "k3sbox", "killall", self.name], timeout_s=120.0)

    def uninstall_k3s(self) -> None:
        """Do what k3s's own k3s-uninstall.sh does; `up_k3s` installs k3s again."""
        run([HERE / "k3sbox", "uninstall", self.name], timeout_s=120.0)

    def ready(self, *, server: Box | None = None, timeout_s: int = 120) -> None:
        """Wait for a Ready of this box's node that is younger than this call; server: where its API server is."""
        run([HERE / "k3sbox", "ready", self.name, str(timeout_s), (server or self).name], timeout_s=timeout_s + 30.0)

    def exec(self, *cmd: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run cmd as root in the box to its end; LabError when it fails (with check) or takes too long."""
        return run([HERE / "box", "exec", self.name, *cmd], input=input, check=check, timeout_s=timeout_s)

    def popen(self, *cmd: str, env: Mapping[str, str] | None = None, log: Path | None = None) -> Process:
        """Start cmd in the box and let it run; env holds the variables that it gets beside the box's few."""
        words = [f"{k}={v}" for k, v in (env or {}).items()]
        return Process([HERE / "box", "exec", self.name, "env", *words, *cmd], env={}, log=log)

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run `k3s kubectl` in the box, which is a server."""
        return self.exec("k3s", "kubectl", *args, input=input, check=check, timeout_s=timeout_s)

    def push(self, *sources: Path, to: str) -> None:
        """Copy files and folders of this machine into the box's folder, and sync them to its disk."""
        self._box("push", *sources, to)

    def reboot(self) -> None:
        """Do an orderly `systemctl reboot`; wait until the next boot is finished (for k3s: ready)."""
        self._box("reboot", timeout_s=300.0)

    def cut(self, *, keep: bool = False) -> None:
        """Cut the power: what no fsync put on the disk is lost (keep: it stays). The box stays off."""
        self._box("cut", *(["keep"] if keep else []))

    def off(self) -> None:
        """Power off in an orderly way."""
        self._box("off")

    def disk(self, folder: str, *, mib: int) -> None:
        """Give this box, which is off, a second disk, mounted on a folder at each boot."""
        self._box("disk", folder, str(mib))

    def save(self, image: str) -> None:
        """Keep the disk of this box, which is off, as an image for `up`."""
        self._box("save", image)

    def network(self, *, plugged: bool) -> None:
        """Pull the network cable, or plug it in."""
        self._box("net", "up" if plugged else "down")

    def down(self) -> None:
        """Remove the box: processes, disk, network, cgroups."""
        self._box("down")


def build(*packages: str) -> None:
    """Make the base disk that new boxes get, with these Debian packages besides (35 s; needs Debian's archive)."""
    run([HERE / "box", "build", *packages], timeout_s=600.0)
