"""The listening socket: it counts connections when they are accepted, and makes room when all places are taken."""

import contextlib
import ipaddress
import socket
from collections.abc import Callable

Address = tuple[str, int]


class ConnectionSlots:
    """The places for connections. When all are taken, the address with the most connections loses its oldest.

    So a flood from one address takes places from itself; a box elsewhere always gets in.
    """

    def __init__(self, most: int, *, closed: Callable[[], object]) -> None:
        """Set the number of places; `closed` is called for each connection that is closed to make room."""
        self._most, self._closed = most, closed
        self._of: dict[str, dict[AcceptedConnection, None]] = {}
        self._taken = 0

    @property
    def taken(self) -> int:
        """How many connections there are."""
        return self._taken

    def take(self, connection: "AcceptedConnection", key: str) -> None:
        """Give a connection a place."""
        if self._taken >= self._most:
            most = max(self._of.values(), key=len)
            oldest = next(iter(most))
            oldest.on_close()
            with contextlib.suppress(OSError):  # its transport notices the end, and closes it
                oldest.shutdown(socket.SHUT_RDWR)
            self._closed()
        self._of.setdefault(key, {})[connection] = None
        self._taken += 1

    def release(self, connection: "AcceptedConnection", key: str) -> None:
        """Take a connection's place back; nothing happens where it has none."""
        of = self._of.get(key, {})
        if connection in of:
            del of[connection]
            self._taken -= 1
            if not of:
                del self._of[key]


class AcceptedConnection(socket.socket):
    """An accepted connection; closing it gives its place up."""

    on_close: Callable[[], None] = staticmethod(lambda: None)

    def close(self) -> None:
        """Close the connection, and give its place up."""
        self.on_close()
        super().close()


class LimitedSocket(socket.socket):
    """A listening socket whose connections have places; asyncio calls `accept` from the thread of its loop."""

    places: ConnectionSlots

    def accept(self) -> tuple[socket.socket, Address]:
        """Accept a connection and give it a place."""
        plain, address = super().accept()
        connection = AcceptedConnection(fileno=plain.detach())
        key = address_key(address[0])
        connection.on_close = lambda: self.places.release(connection, key)
        self.places.take(connection, key)
        return connection, address


def address_key(host: str) -> str:
    """Return what counts as one address: of IPv6 the first 64 bits, since everybody has a whole /64 at least."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return host
    if found.ipv4_mapped is not None:  # an IPv4 client at an IPv6 socket
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network(f"{found}/64", strict=False))
