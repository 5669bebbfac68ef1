"""The cards of a box and what is free on them, by its own last reports; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_cloud.fleet.reports import LatestMessages, card_reports
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.telemetry import CardReport, PodAlloc


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxCapacity:
    """The cards of a box, and the memory units of those that are shared: healthy, and not excluded.

    `shared_cards`, `units` and `free_units` are 0 where sharing is not installed. `as_of_s`: the older of the two
    reports, seconds since 1970.
    """

    cards: int
    shared_cards: int
    sharing: bool
    units: int
    free_units: int
    as_of_s: float


def capacity_of(latest: LatestMessages) -> BoxCapacity | None:
    """Return a box's capacity; None before it has reported its cards."""
    reports = card_reports(latest)
    if reports is None:
        return None
    inventory = reports.inventory
    shared = [card for card in inventory.cards if is_shared(card)] if inventory.sharing else []
    held = held_units({card.uuid: card.units for card in shared}, reports.pods)
    return BoxCapacity(
        cards=len(inventory.cards),
        shared_cards=len(shared),
        sharing=inventory.sharing,
        units=sum(card.units for card in shared),
        free_units=sum(max(0, card.units - held.get(card.uuid, 0)) for card in shared),
        as_of_s=reports.as_of_s,
    )


def is_shared(card: CardReport) -> bool:
    """Whether new pods may get a share of a card."""
    return card.healthy and not card.excluded


def held_units(units: Mapping[str, int], pods: Mapping[str, PodAlloc]) -> dict[str, int]:
    """Return how many units of each card are held, by its UUID; a container with a whole card holds all of them.

    Args:
        units: of each card.
        pods: those that hold shares on the box.
    """
    held: dict[str, int] = {}
    for piece in (piece for pod in pods.values() for piece in pod.pieces):
        mine = units.get(piece.card, 0) if piece.core >= CORE_PER_CARD else piece.memory_units
        held[piece.card] = held.get(piece.card, 0) + mine
    return held
