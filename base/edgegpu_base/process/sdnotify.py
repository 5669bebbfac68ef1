"""Notifications of a service to systemd by sd_notify; none in a process that systemd did not start."""

import contextlib
import os
import socket
from collections.abc import Mapping

_MICROSECONDS = 1_000_000


class Notifier:
    """The notifier of a service, by datagrams to systemd's socket; it does not fail when no manager reads them."""

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        """Build the notifier; without an address it sends nothing."""
        self.watchdog_s = watchdog_s
        """Seconds within which `watchdog` must be called again; half of it is a good period. None: no watchdog."""
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Report that start-up is complete."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show this text, as one line, in `systemctl status`."""
        self._send("STATUS=" + " ".join(text.split()))

    def watchdog(self) -> None:
        """Report that the process is alive."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """Ask for this much more time to start or stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as link:  # systemd has its own deadlines
            link.sendto(message.encode(), self._address)


def notifier(environ: Mapping[str, str]) -> Notifier:
    """Return the notifier for a process with this environment."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return Notifier()
    return Notifier(address, watchdog_s=_watchdog_s(environ))


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's period; None if WATCHDOG_PID names another of the service's processes."""
    text = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    return int(text) / _MICROSECONDS if meant and text.isdigit() and int(text) > 0 else None
