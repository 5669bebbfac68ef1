"""The address that a link connects to, and the events that it puts out."""

from dataclasses import dataclass
from pathlib import Path

from edgegpu_sync.link.routes import BrokerRoute
from edgegpu_sync.link.rules import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The broker's address and our identity there. Each try reads it anew, so that a renewed certificate is used."""

    host: str
    port: int
    client_id: str
    ca: Path
    cert: Path
    key: Path
    check_dates: bool = True
    """False: chain and host name are verified, the dates are not, because this machine's clock cannot be right."""
    routes: tuple[BrokerRoute, ...] = ()
    """The routes to try instead of host and port, the best first; empty: host and port alone."""

    @property
    def ways(self) -> tuple[BrokerRoute, ...]:
        """The routes to try, the best first."""
        return self.routes or (BrokerRoute(host=self.host, port=self.port),)


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The link is connected and subscribed: publish the birth now, with this `connection` number.

    `route`: how it has connected; `failed`: why other routes, tried before it, have not.
    """

    session_present: bool
    protocol: Protocol
    connection: int = 0
    route: BrokerRoute | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection has ended, or none could be made; put out again only when the reason changes."""

    why: str


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A received message, to be acknowledged by `Link.ack` when it is on the disk; `connection` is its number."""

    topic: str
    payload: bytes
    retained: bool
    mid: int
    connection: int


@dataclass(frozen=True, slots=True)
class PublishAcknowledged:
    """The broker has acknowledged a publish. It proves little: 3.1.1 brokers acknowledge what they refuse.

    `refused`: why the broker (MQTT 5) or the quarantine has not accepted it; empty where nothing is known.
    """

    token: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class FiltersGranted:
    """The broker has granted the filters of a `Link.subscribe`: what is published from now on arrives."""

    token: int


LinkEvent = LinkUp | LinkDown | MessageArrived | PublishAcknowledged | FiltersGranted
