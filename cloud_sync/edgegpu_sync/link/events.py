"""What a link is told, and what comes out of it."""

from dataclasses import dataclass
from pathlib import Path

from edgegpu_sync.link.rules import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the broker is, and who we are to it. Read anew at each try, so that a renewed certificate is used."""

    host: str
    port: int
    client_id: str
    ca: Path
    cert: Path
    key: Path
    check_dates: bool = True
    """False: chain and host name are verified, dates are not, since this machine's clock cannot be right."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Connected and subscribed: now send the birth, with `turn`."""

    session_present: bool
    protocol: Protocol
    turn: int = 0


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection is gone, or none could be made; said again only when the reason is another one."""

    why: str


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A message, for `Link.ack` to acknowledge when it is on the disk; `turn` is the connection that brought it."""

    topic: str
    payload: bytes
    retained: bool
    mid: int
    turn: int


@dataclass(frozen=True, slots=True)
class PublishAcknowledged:
    """The broker has acknowledged a publish. It proves little: 3.1.1 brokers acknowledge what they refuse.

    `refused` says why the broker (MQTT 5), or the quarantine, has not taken it; empty where nothing is known.
    """

    token: int
    refused: str = ""


LinkEvent = LinkUp | LinkDown | MessageArrived | PublishAcknowledged
