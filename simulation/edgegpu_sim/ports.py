"""TCP ports of this machine: which are free, and who answers."""

import contextlib
import secrets
import socket
from pathlib import Path

_PORTS = 10_000
"""Below are the ports of well-known services; above the kernel's range of ports for connections begins."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses now; the kernel gives it to no connection either."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        # `random` would do, but hypothesis seeds it, alike in each process that runs beside this one.
        port = _PORTS + secrets.randbelow(max(lowest - _PORTS, 1_000))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


def answers(port: int) -> bool:
    """Return whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
