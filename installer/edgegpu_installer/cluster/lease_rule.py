"""Who may install: the rule over what is seen of the cluster's install lease. Pure: no clock, no API."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

DURATION_S = 300
"""How long a holder may be silent. Its own k3s restarts meanwhile, which on a slow box takes minutes: so it is longer
than a transaction's deadline."""

RENEW_S = 10.0
"""How often a holder writes that it lives."""

_LOOKS = 3
"""So many renewals must have been missed before our eyes, whatever the clocks say: they may differ by years."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A process of one boot of one node, as it stands in the lease."""

    node: str
    pid: int
    boot: str

    def __str__(self) -> str:
        return f"{self.node}/{self.pid}/{self.boot}"

    @classmethod
    def parse(cls, text: str) -> "LeaseHolder | None":
        """Read a lease's holderIdentity; None when it is not of our form."""
        node, _, rest = text.partition("/")
        pid, _, boot = rest.partition("/")
        return cls(node, int(pid), boot) if node and boot and pid.isdecimal() else None


@dataclass(frozen=True, slots=True)
class InstallLeaseRecord:
    """A lease as the API server stores it."""

    holder: str
    version: str
    since: datetime | None = None
    renewed: datetime | None = None
    duration_s: int = DURATION_S


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """What one who wants the lease has seen of it."""

    record: InstallLeaseRecord | None
    """As it is now; None without a lease."""
    now: datetime | None
    """The API server's clock, where it said it."""
    first: InstallLeaseRecord | None
    """As it was when the looking began."""
    watched_s: float
    """For how long it has been looked at, by our own monotonic clock."""


class LeaseAction(Enum):
    """What one who wants the lease does."""

    TAKE = "take"
    """Nobody holds it, or its holder is gone."""
    WAIT = "wait"
    """Its holder may be gone: look again."""
    HELD = "held"
    """Its holder lives."""


def verdict(sight: LeaseObservation, me: LeaseHolder, alive: Callable[[LeaseHolder], bool]) -> LeaseAction:
    """Say what one who wants the lease does about what it has seen.

    A holder lives when it renews before our eyes. It is gone when it is of this node and its process or its boot is;
    when it has been silent before our eyes for the lease's whole duration; or for three renewals, if the API server's
    clock says that the duration is over. Clocks alone are never believed.

    Args:
        sight: what was seen.
        me: who wants it.
        alive: says whether a holder of this node lives.
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
