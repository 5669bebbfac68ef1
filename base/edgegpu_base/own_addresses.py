"""Whether an address is one of this machine's own: the kernel is asked, and no list that could be old."""

import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

PROC = Path("/proc")

_ANY = {4: "sys/net/ipv4/ip_nonlocal_bind", 6: "sys/net/ipv6/ip_nonlocal_bind"}


def is_own_address(text: str, *, proc: Path = PROC) -> bool:
    """Return whether a text is an address of this machine; an IPv6 address may have its scope, as in `fe80::1%eth0`.

    A socket may be bound to the machine's own addresses alone. Where the machine lets it be bound to others too (the
    sysctl `ip_nonlocal_bind`), the kernel's lists of its addresses count.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_own_address(str(address.ipv4_mapped), proc=proc)
    if address.is_loopback:
        return True
    if address.is_unspecified or address.is_multicast:
        return False
    return _is_listed(address, proc) if _may_bind_any(address, proc) else _may_bind(text)


def _may_bind(text: str) -> bool:
    """Return whether a socket may be bound to an address, and another be connected with it: no broadcast one."""
    try:
        [(family, _, _, _, place), *_] = socket.getaddrinfo(
            text, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )
        with socket.socket(family, socket.SOCK_DGRAM) as bound, socket.socket(family, socket.SOCK_DGRAM) as sending:
            bound.bind((place[0], 0, *place[2:]))
            sending.connect(place)  # UDP: nothing is sent
    except OSError:
        return False
    return True


def _may_bind_any(address: IPv4Address | IPv6Address, proc: Path) -> bool:
    with suppress(OSError):
        return (proc / _ANY[address.version]).read_text().strip() != "0"
    return False


def _is_listed(address: IPv4Address | IPv6Address, proc: Path) -> bool:
    with suppress(OSError):
        if isinstance(address, IPv6Address):
            listed = (line.split()[0] for line in (proc / "net/if_inet6").read_text().splitlines())
            return f"{int(address):032x}" in listed
        lines = (proc / "net/fib_trie").read_text().splitlines()
        pairs = pairwise(lines)
        return any(
            line.endswith(f"|-- {address}") and after.split() == ["/32", "host", "LOCAL"] for line, after in pairs
        )
    return False
