"""The cards of a node: physical cards and MIG devices, in PCI order, as placement sees them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edgegpu_core.deviceid import MAX_ID_LENGTH
from edgegpu_core.model import CORE_PER_CARD, ResourceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card that can be shared: a GPU, or a MIG device of one.

    `index` is the number that nvidia-smi on the host shows for the GPU, `mig` the number of the MIG device in it.
    """

    uuid: str
    index: int
    name: str
    memory_mib: int
    pci: str
    minor: int
    mig: int | None = None
    parent: str | None = None
    """UUID of the GPU that a MIG device is part of."""
    caps: tuple[int, ...] = ()
    """Minor numbers of the MIG capability devices that a container needs for it."""
    healthy: bool = True
    answers: bool = True
    """Whether NVML gets an answer from it; a card that fell off the bus gives none."""
    problem: str = ""
    """Why it is out of order, with what ends that; empty where it is in order, or nobody knows."""
    watched: bool = True
    """Whether the driver reports its errors (XID)."""
    capability: tuple[int, int] | None = None
    """Its CUDA compute capability; None when the driver does not say."""
    exclusive: bool = False
    """Whether its compute mode lets one process alone use it."""
    kept_mib: int | None = None
    """What the driver keeps of its memory for itself; None when the driver does not say."""

    @property
    def label(self) -> str:
        """The card as people call it: `0`, or `0:1` for the second MIG device of GPU 0."""
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig}"

    def units(self, model: ResourceModel) -> int:
        """Return how many units of memory it offers."""
        return model.units_of(self.memory_mib, kept_mib=self.kept_mib)


@dataclass(frozen=True, slots=True)
class CardCapacity:
    """What placement needs of a card: who it is and how much it has."""

    uuid: str
    label: str
    units: int
    healthy: bool = True


def usable(cards: Iterable[Card], exclude: frozenset[str] = frozenset()) -> tuple[Card, ...]:
    """Return the cards that the node offers, in PCI order (MIG devices by number), without the excluded ones.

    Args:
        cards: what NVML found; a GPU in MIG mode is given by its MIG devices.
        exclude: labels (`0`, `0:1`), GPU indexes (which take their MIG devices with them) or UUIDs.
    """
    kept = [
        card
        for card in cards
        if not exclude & {card.uuid, card.label, str(card.index), card.parent or card.uuid}
        and len(card.uuid) + len("::m00000") <= MAX_ID_LENGTH
    ]
    return tuple(sorted(kept, key=lambda card: (card.pci.lower(), -1 if card.mig is None else card.mig)))


def slots(cards: Iterable[Card], model: ResourceModel) -> tuple[CardCapacity, ...]:
    """Return the cards as placement sees them, in the order given."""
    return tuple(CardCapacity(card.uuid, card.label, card.units(model), card.healthy) for card in cards)


def kept_as_before(card: Card, past: Card | None) -> Card:
    """Return a card with what the driver kept of it before, where it does not say that now: no unit is added by that.

    A driver before 510 does not say it either, and shows a smaller card.
    """
    if past is None or card.kept_mib is not None or card.memory_mib != past.memory_mib:
        return card
    return replace(card, kept_mib=past.kept_mib)


def offer_text(card: Card, model: ResourceModel) -> str:
    """Return what is offered of a card, and where that is asked for, what the driver keeps of it."""
    kept = ""
    if model.reserve_mib is None:
        known = f"{card.kept_mib} MiB of them kept by the driver"
        kept = f" ({known if card.kept_mib is not None else 'all of them: the driver does not say what it keeps'})"
    return f"card {card.label} {card.name} {card.memory_mib} MiB{kept}"


class FreeAmounts:
    """What is free on each card of one node: memory units and hundredths; a card out of order has nothing free."""

    __slots__ = ("core", "memory", "slots")

    def __init__(self, cards: tuple[CardCapacity, ...]) -> None:
        self.slots = cards
        self.memory = [slot.units if slot.healthy else 0 for slot in cards]
        self.core = [CORE_PER_CARD if slot.healthy else 0 for slot in cards]

    def copy(self) -> "FreeAmounts":
        """Return a copy that can be changed independently."""
        twin = object.__new__(FreeAmounts)
        twin.slots, twin.memory, twin.core = self.slots, self.memory.copy(), self.core.copy()
        return twin

    def position(self, uuid: str) -> int | None:
        """Return the index of a card in the lists, or None when the node does not have it."""
        return next((i for i, slot in enumerate(self.slots) if slot.uuid == uuid), None)

    def is_empty(self, position: int) -> bool:
        """Return whether a card is healthy and wholly free."""
        slot = self.slots[position]
        return slot.healthy and self.memory[position] == slot.units and self.core[position] == CORE_PER_CARD

    def take(self, position: int, memory_units: int, core: int) -> None:
        """Book a share of a card; what is free never falls below zero."""
        self.memory[position] = max(0, self.memory[position] - memory_units)
        self.core[position] = max(0, self.core[position] - core)

    def give(self, position: int, memory_units: int, core: int) -> None:
        """Undo a booking that `take` made."""
        self.memory[position] += memory_units
        self.core[position] += core
