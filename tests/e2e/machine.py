"""What the tests ask of a node's machine, be it namespaces of this one or a booted box."""

from pathlib import Path
from typing import Protocol

from lab.labrun import Completed, Process


class Machine(Protocol):
    """A node's machine."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def ip(self) -> str:
        """The address at which nodes reach the API server, if this is the server."""

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run kubectl with the administrator's rights."""

    def path(self, inside: str | Path) -> Path:
        """Return where this machine sees a file of the node."""

    def write(self, inside: str, text: str, *, mode: int = 0o644) -> Path:
        """Write a file of the node."""

    def exec(self, *cmd: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run a program in the node to its end."""

    def popen(self, *cmd: str, log: Path | None = None) -> Process:
        """Start a program in the node and let it run."""

    def restart(self) -> None:
        """Restart k3s and wait until the node is Ready."""

    def kill(self) -> None:
        """Kill -9 k3s; it starts again by itself."""

    def ready(self) -> None:
        """Wait for a Ready that is younger than this call."""
