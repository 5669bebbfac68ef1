"""The sharing of a box's cards by its own last report; pure."""

from dataclasses import dataclass

from edgegpu_cloud.fleet.reports import read_latest
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.topics import TopicKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSharing:
    """A box's sharing, under the names of the desired document's items; each is None where sharing is not installed.

    `exclusions` are the cards' numbers. `as_of_s`: when the report was heard, seconds since 1970.
    """

    sharing: bool
    isolation: str | None
    policy: str | None
    exclusions: tuple[str, ...] | None
    unit_size: int | None
    as_of_s: float


def reported_sharing_of(details: BoxDetails) -> ReportedSharing | None:
    """Return how a box shares its cards; None before its first report."""
    told: Inventory | None = read_latest(details.latest, TopicKind.INVENTORY)
    if told is None:
        return None
    there = told.sharing
    return ReportedSharing(
        sharing=there,
        isolation=told.mode if there else None,
        policy=told.policy if there else None,
        exclusions=tuple(card.label for card in told.cards if card.excluded) if there else None,
        unit_size=told.unit_mib if there else None,
        as_of_s=details.latest[TopicKind.INVENTORY].at_s,
    )
