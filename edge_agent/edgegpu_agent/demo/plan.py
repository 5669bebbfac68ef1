"""The amounts of each scenario's services, for the cards in the field and for any others."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_agent.cli.clients.document import CardRow

CARD_24G_MIB = 24259
CARD_8G_MIB = 7611
CARD_4G_MIB = 4096

_TWO = 2
_CORES = 3
"""The core that all services of a scenario need of one card together, at most, in hundredths."""


@dataclass(frozen=True, slots=True)
class ServiceAmounts:
    """`first`, `second` and `third` fit; `too_much` in place of `third` is more than the node has left."""

    first: int
    second: int
    third: int
    too_much: int

    def __str__(self) -> str:
        return f"{self.first}, {self.second} and {self.third} units, the third grows to {self.too_much} and back"


@dataclass(frozen=True, slots=True)
class ThreeServices:
    """Three services: one `small`, and two `large` that fit on no card together."""

    small: int
    large: int

    def __str__(self) -> str:
        return f"{self.small}, {self.large} and {self.large} units"


@dataclass(frozen=True, slots=True)
class ServiceSizes:
    """Two pairs of services: two `small` fit on the first card; `small` and `larger` fit on no card together."""

    small: int
    larger: int

    def __str__(self) -> str:
        return f"{self.small} and {self.small} units, then {self.small} and {self.larger}"


FIELD_FILLING = ServiceAmounts(50, 40, 1, 10)
"""For one card of 24259 MiB: 94 units."""

FIELD_THREE = ThreeServices(4, 20)
"""For two cards of 7611 MiB: 29 units each."""

FIELD_PAIR = ServiceSizes(8, 12)
"""2 GiB and 2 GiB, then 2 GiB and 3 GiB, for two cards of 4 GiB: 16 units each."""


def filling_for(cards: Sequence[CardRow]) -> ServiceAmounts | None:
    """Return amounts in the field's proportions for the card with most room; None where there is too little.

    `too_much` is counted over all units of the node. So it is more than the scheduler sees free, whatever other pods
    hold, and the scheduler answers "Insufficient".
    """
    most = max(_free(cards), default=0)
    first, second = most * 50 // 94, most * 40 // 94
    if second < 1 or most - first - second < 1:
        return None
    return ServiceAmounts(first, second, 1, sum(card.units for card in cards) - first - second + 1)


def three_for(cards: Sequence[CardRow]) -> ThreeServices | None:
    """Return amounts whose two large services need two cards; None where no two cards have room for one each."""
    free = _free(cards)
    by_room = sorted(free, reverse=True)
    if len(free) < _TWO:
        return None
    large = max(by_room[0] // 2 + 1, by_room[1] * 20 // 29)
    for small in (max(1, by_room[0] * 4 // 29), 1):
        if _first_fit(free, (small, large, large)):
            return ThreeServices(small, large)
    return None


def pair_for(cards: Sequence[CardRow]) -> ServiceSizes | None:
    """Return amounts for a pair on the first card and a pair on two cards; None where no two cards allow that."""
    free = _free(cards)
    if len(free) < _TWO:
        return None
    small, most = free[0] // 2, max(free)
    larger = max(most - small + 1, most * 3 // 4)
    return ServiceSizes(small, larger) if small and _first_fit(free, (small, larger)) else None


def _free(cards: Sequence[CardRow]) -> list[int]:
    """Return the free units of the usable cards, in the cards' order."""
    return [card.units_free for card in cards if card.healthy and card.units_free and card.core_free >= _CORES]


def _first_fit(free: Sequence[int], amounts: Sequence[int]) -> bool:
    """Return whether all amounts find a card when they are placed one after the other."""
    left = list(free)
    for amount in amounts:
        card = next((position for position, room in enumerate(left) if room >= amount), None)
        if card is None:
            return False
        left[card] -= amount
    return True
