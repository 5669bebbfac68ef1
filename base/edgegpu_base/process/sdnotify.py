"""Notifications of a service to systemd by sd_notify; none in a process that systemd did not start."""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Protocol

_MICROSECONDS = 1_000_000


class Notifier(Protocol):
    """The notifications of a service to its manager."""

    watchdog_s: float | None
    """Seconds within which `watchdog` must be called again; half of it is a good period. None without a watchdog."""

    def ready(self) -> None:
        """Report that start-up is complete."""

    def status(self, text: str) -> None:
        """Show this line in `systemctl status`."""

    def watchdog(self) -> None:
        """Report that the process is alive."""

    def extend_timeout(self, seconds: float) -> None:
        """Ask for this much more time to start or stop."""

    def stopping(self) -> None:
        """Report that the process is stopping."""


class NullNotifier:
    """The notifier of a process that systemd did not start."""

    watchdog_s: float | None = None

    def ready(self) -> None:
        """Send no READY."""

    def status(self, text: str) -> None:
        """Send no STATUS."""

    def watchdog(self) -> None:
        """Send no WATCHDOG."""

    def extend_timeout(self, seconds: float) -> None:
        """Send no EXTEND_TIMEOUT_USEC."""

    def stopping(self) -> None:
        """Send no STOPPING."""


class SystemdNotifier:
    """The notifier that sends datagrams to systemd's socket; without a manager it does not fail."""

    def __init__(self, address: str, *, watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Send READY."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send STATUS, as one line."""
        self._send("STATUS=" + " ".join(text.split()))

    def watchdog(self) -> None:
        """Send WATCHDOG."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """Send EXTEND_TIMEOUT_USEC."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def stopping(self) -> None:
        """Send STOPPING."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as link:  # systemd has its own deadlines
            link.sendto(message.encode(), self._address)


def notifier(environ: Mapping[str, str]) -> Notifier:
    """Return the notifier for a process with this environment."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return NullNotifier()
    return SystemdNotifier(address, watchdog_s=_watchdog_s(environ))


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's period; None if WATCHDOG_PID names another of the service's processes."""
    text = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    return int(text) / _MICROSECONDS if meant and text.isdigit() and int(text) > 0 else None
