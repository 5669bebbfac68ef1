"""TCP ports of this machine: which are free, and which answer."""

import contextlib
import secrets
import socket
from pathlib import Path

_PORTS = 11_000
"""The lowest port to use: below are those of well-known services and of k3s. The kernel's range lies higher."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now, and that the kernel gives to no connection.

    No further call gets it while this process lives, be it here or in another process of this network namespace:
    who asks for two ports, or asks beside another, has not listened on the first yet.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        # Not `random`: hypothesis seeds it equally in each process that runs beside this one.
        port = _PORTS + secrets.randbelow(max(lowest - _PORTS, 1_000))
        # A name of the abstract space: a network namespace has each once, and it ends with its process (unix(7)).
        with socket.socket() as probe, socket.socket(socket.AF_UNIX) as taken:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                taken.bind(f"\0edgegpu-port-{port}")
                probe.bind(("127.0.0.1", port))
                taken.detach()  # open until this process ends
                return port


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a process listens on a port of this machine, at one of its IPv4 addresses."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
