"""Card-bound device ids, `GPU-<uuid>::m0007` and `GPU-<uuid>::c42`: the card can be read from kubelet's own records."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from edgegpu_core.model import CORE_PER_CARD

SEPARATOR = "::"
"""GPU exporters split device ids at this text to map a pod to its card."""

MAX_ID_LENGTH = 63
"""kubelet's limit on the length of a device id."""


class DeviceKind(Enum):
    """Which of the two resources a device belongs to; the value is the letter in its id."""

    MEMORY = "m"
    CORE = "c"

    @property
    def other(self) -> "DeviceKind":
        """The other resource of the pair."""
        return DeviceKind.CORE if self is DeviceKind.MEMORY else DeviceKind.MEMORY


@dataclass(frozen=True, slots=True)
class DeviceId:
    """One device: a unit of memory or a hundredth of the compute of one card."""

    card: str
    kind: DeviceKind
    number: int

    def __str__(self) -> str:
        return f"{self.card}{SEPARATOR}{self.kind.value}{self.number:0{4 if self.kind is DeviceKind.MEMORY else 2}d}"


def parse(text: str) -> DeviceId:
    """Read a device id.

    Raises:
        ValueError: the text is no id of ours.
    """
    card, separator, tail = text.partition(SEPARATOR)
    if not (card and separator and len(tail) > 1 and tail[0] in "mc" and tail[1:].isascii() and tail[1:].isdigit()):
        raise ValueError(f"not a device id of edgegpu: {text!r}")
    return DeviceId(card, DeviceKind(tail[0]), int(tail[1:]))


def card_of(text: str) -> str:
    """Return the card that a device id names; the whole text when the id is not ours."""
    return text.partition(SEPARATOR)[0]


def memory_ids(card: str, units: int) -> tuple[str, ...]:
    """Return the ids of a card's memory units, in order."""
    return tuple(f"{card}{SEPARATOR}m{number:04d}" for number in range(units))


def core_ids(card: str) -> tuple[str, ...]:
    """Return the ids of a card's hundredths, in order."""
    return tuple(f"{card}{SEPARATOR}c{number:02d}" for number in range(CORE_PER_CARD))


def count_by_card(ids: Iterable[str]) -> dict[str, int]:
    """Return how many of `ids` lie on each card."""
    counts: dict[str, int] = {}
    for text in ids:
        card = card_of(text)
        counts[card] = counts.get(card, 0) + 1
    return counts
