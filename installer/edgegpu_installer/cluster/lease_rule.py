"""The rule of the install lease: who may take it, from observations of it; pure, without clock and API."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

DURATION_S = 300
"""How long a holder may be silent: while its own k3s restarts, which takes minutes on a slow box."""

RENEW_S = 10.0
"""How often a holder renews the lease."""

_LOOKS = 3
"""How many missed renewals must be observed, whatever the clocks say: they may differ by years."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A holder in the lease: a process of one boot of one node."""

    node: str
    pid: int
    boot: str

    def __str__(self) -> str:
        return f"{self.node}/{self.pid}/{self.boot}"

    @classmethod
    def parse(cls, text: str) -> "LeaseHolder | None":
        """Parse a lease's holderIdentity; None when it is not in our format."""
        node, _, rest = text.partition("/")
        pid, _, boot = rest.partition("/")
        return cls(node, int(pid), boot) if node and boot and pid.isdecimal() else None


@dataclass(frozen=True, slots=True)
class InstallLeaseRecord:
    """The install lease as the API server stores it."""

    holder: str
    version: str
    since: datetime | None = None
    renewed: datetime | None = None
    duration_s: int = DURATION_S


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """What a process that wants the lease has observed of it."""

    record: InstallLeaseRecord | None
    """The present lease; None when there is none."""
    now: datetime | None
    """The time of the API server's clock; None when it gave none."""
    first: InstallLeaseRecord | None
    """The lease when the observation began."""
    watched_s: float
    """How long the lease has been observed, by this machine's monotonic clock."""


class LeaseAction(Enum):
    """What a process that wants the lease does."""

    TAKE = "take"
    """Take the lease: it is free, or its holder is gone."""
    WAIT = "wait"
    """Observe it again: its holder may be gone."""
    HELD = "held"
    """Give up: its holder lives."""


def verdict(sight: LeaseObservation, me: LeaseHolder, alive: Callable[[LeaseHolder], bool]) -> LeaseAction:
    """Return what a process that wants the lease does after an observation.

    A holder lives when it renews while it is observed. It is gone when it is of this node and its process or its boot
    is gone; when it was observed to be silent for the lease's whole duration; or for three renewals, if by the API
    server's clock the duration is over. Clocks alone never decide.

    Args:
        sight: what was observed.
        me: the process that wants the lease.
        alive: returns whether a holder of this node lives.
    """
    record, first = sight.record, sight.first
    if record is None or not record.holder or record.holder == str(me):
        return LeaseAction.TAKE
    holder = LeaseHolder.parse(record.holder)
    if holder is not None and holder.node == me.node and not alive(holder):
        return LeaseAction.TAKE
    if first is not None and first.version != record.version:
        return LeaseAction.HELD
    if sight.watched_s >= record.duration_s:
        return LeaseAction.TAKE
    if sight.watched_s >= _LOOKS * RENEW_S and _is_over(record, sight.now):
        return LeaseAction.TAKE
    return LeaseAction.WAIT


def _is_over(record: InstallLeaseRecord, now: datetime | None) -> bool:
    if now is None or record.renewed is None:
        return False
    return now - record.renewed > timedelta(seconds=record.duration_s)
