"""What containers use of their cards, beside what they were given: for `edgegpu pods`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edgegpu_agent.cli.clients.document import CardRef, PodRow, StatusDocument, UseRow
from edgegpu_base.cli.output import counted
from edgegpu_core.model import CORE_PER_CARD, size_text


@dataclass(frozen=True, slots=True)
class UseOfCard:
    """What a container uses of one card; `given_mib` is None where the document does not say what it has there."""

    given_mib: int | None
    use: UseRow | None

    @property
    def is_over(self) -> bool:
        """Whether it uses more than it was given."""
        used_mib = self.use.used_mib if self.use else None
        return used_mib is not None and self.given_mib is not None and used_mib > self.given_mib

    def to_json(self) -> dict[str, Any]:
        """Return it for --json; null for what is not known."""
        return {
            "given_mib": self.given_mib,
            "used_mib": self.use.used_mib if self.use else None,
            "processes": self.use.processes if self.use else None,
        }

    def __str__(self) -> str:
        if self.use is None:
            return "-"
        used = size_text(self.use.used_mib) if self.use.used_mib is not None else "not reported"
        over = " (over)" if self.is_over else ""
        return used if self.given_mib is None else f"{used} of {size_text(self.given_mib)}{over}"


def use_of(row: PodRow, ref: CardRef, document: StatusDocument) -> UseOfCard:
    """Return what a container uses of one of its cards."""
    card = next((one for one in document.cards if one.uuid == ref.uuid), None)
    if row.core >= CORE_PER_CARD:
        units = card.units if card else None
    else:
        units = ref.units if ref.units is not None else row.units if len(row.cards) == 1 else None
    given_mib = None if units is None else units * document.unit_mib
    return UseOfCard(given_mib, document.use.of(row.uid, row.container, ref.uuid))


def others(document: StatusDocument) -> Iterator[tuple[str, UseRow]]:
    """Yield what uses a card without a share of it, after the card's number: processes of no pod, and other pods."""
    shares = {(row.uid, row.container, ref.uuid) for row in document.pods for ref in row.cards}
    numbers = {one.uuid: one.index for one in document.cards} | {one.uuid: one.index for one in document.other_cards}
    for row in document.use.rows:
        if row.processes and (row.uid, row.container, row.card) not in shares:
            yield numbers.get(row.card, row.card), row


def other_words(number: str, row: UseRow, document: StatusDocument) -> str:
    """Return what uses a card without a share, as a line."""
    used = size_text(row.used_mib) if row.used_mib is not None else "memory, how much the driver does not report,"
    name = next((one.full_name for one in document.pods if one.uid == row.uid), f"the pod with the uid {row.uid}")
    whose = f"by {name}, outside of its shares" if row.uid else "outside of pods"
    return f"card {number}: {used} used {whose} ({counted(row.processes, 'process')})"
