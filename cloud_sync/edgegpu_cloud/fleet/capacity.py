"""The cards of a box and what is free on them, by its own last reports; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_cloud.store import Latest
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.readers import READERS
from edgegpu_sync.messages.telemetry import Alloc, CardReport, Inventory
from edgegpu_sync.topics import TopicKind


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


def capacity_of(latest: Mapping[TopicKind, Latest]) -> BoxCapacity | None:
    """Return a box's capacity; None before it has reported its cards."""
    inventory = latest.get(TopicKind.INVENTORY)
    if inventory is None:
        return None
    told: Inventory = READERS[TopicKind.INVENTORY].validate_python(inventory.body, strict=False)
    alloc = latest.get(TopicKind.ALLOC)
    shared = [card for card in told.cards if is_shared(card)] if told.sharing else []
    held = held_units({card.uuid: card.units for card in shared}, alloc)
    return BoxCapacity(
        cards=len(told.cards),
        shared_cards=len(shared),
        sharing=told.sharing,
        units=sum(card.units for card in shared),
        free_units=sum(max(0, card.units - held.get(card.uuid, 0)) for card in shared),
        as_of_s=min(one.at_s for one in (inventory, alloc) if one is not None),
    )


def is_shared(card: CardReport) -> bool:
    """Whether new pods may get a share of a card."""
    return card.healthy and not card.excluded


def held_units(units: Mapping[str, int], alloc: Latest | None) -> dict[str, int]:
    """Return how many units of each card are held, by its UUID; a container with a whole card holds all of them.

    Args:
        units: of each card.
        alloc: the box's last report of the shares that pods hold.
    """
    held: dict[str, int] = {}
    if alloc is not None:
        told: Alloc = READERS[TopicKind.ALLOC].validate_python(alloc.body, strict=False)
        for piece in (piece for pod in told.pods.values() for piece in pod.pieces):
            mine = units.get(piece.card, 0) if piece.core >= CORE_PER_CARD else piece.memory_units
            held[piece.card] = held.get(piece.card, 0) + mine
    return held
