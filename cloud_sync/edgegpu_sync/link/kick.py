"""Puts a client out: a broker has one connection for each client-id, and a controller may choose its own."""

import contextlib
import time

from edgegpu_sync.link.desk import Waker
from edgegpu_sync.link.dial import LinkError, dial
from edgegpu_sync.link.events import Address
from edgegpu_sync.link.pahoclient import Closed, Hello, Opened, Wire
from edgegpu_sync.link.rules import V5, Ending


def kick(address: Address, *, timeout_s: float = 10.0) -> None:
    """Take the place of a client, drop what the broker keeps for it, and go; blocks for up to half a minute.

    A broker does not close the connection of one whose certificate was revoked while it is connected. It tries to
    come back at once, and is refused if the broker has read the new list.

    Args:
        address: a controller's, with the client-id of who is to go.
        timeout_s: how long the broker may take to answer.

    Raises:
        LinkError: the broker cannot be reached, or refuses.
    """
    hello = Hello(client_id=address.client_id, protocol=V5, keepalive_s=60, will=None, session_s=0, receive_max=1)
    end = time.monotonic() + timeout_s
    with (
        Waker() as waker,
        contextlib.closing(dial(address)) as sock,
        contextlib.closing(Wire(sock, hello)) as wire,
    ):
        while (left_s := end - time.monotonic()) > 0:
            for fact in wire.step(wake=waker.fileno(), timeout_s=left_s):
                match fact:
                    case Opened():
                        wire.goodbye()
                        return
                    case Closed():
                        raise LinkError(fact.ending, f"cannot put {address.client_id} out: {fact.why}")
                    case _:
                        pass
    raise LinkError(Ending.SILENT, f"cannot put {address.client_id} out: the broker does not answer")
