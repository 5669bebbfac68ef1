"""The health of the cards: which are out of order, and when they are in order again; time is passed in."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from edgegpu_core.inventory import Card

IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of an application itself, which leave the card healthy (NVIDIA's device plugin ignores the same)."""


class CardHealth:
    """The cards seen since the process began: which answer no more, and which reported an error."""

    def __init__(self, recover_s: float) -> None:
        self._recover_s = recover_s
        self._answered: dict[str, Card] = {}
        self._silent: dict[str, Card] = {}
        self._xid_at: dict[str, float] = {}

    @property
    def missing(self) -> bool:
        """Whether a card that was there does not answer."""
        return bool(self._silent)

    def known(self) -> tuple[Card, ...]:
        """Return the cards that are there or were, by index."""
        both = (self._answered | self._silent).values()
        return tuple(sorted(both, key=lambda card: (card.index, -1 if card.mig is None else card.mig)))

    def update(self, found: Iterable[Card], gpus: Collection[str]) -> None:
        """Take the result of one query of all cards.

        Args:
            found: the cards that answered.
            gpus: UUIDs of the GPUs that answered. Cards that such a GPU no longer has (MIG changed) are forgotten;
                the cards of a GPU that did not answer are kept as out of order.
        """
        before = self._answered | self._silent
        self._answered = {card.uuid: card for card in found}
        self._silent = {
            uuid: card
            for uuid, card in before.items()
            if uuid not in self._answered and (card.parent or uuid) not in gpus
        }

    def report_xid(self, uuids: Iterable[str], code: int, now_s: float) -> bool:
        """Record an error that the driver reported for these cards; return whether it puts them out of order."""
        if code in IGNORED_XIDS:
            return False
        for uuid in uuids:
            self._xid_at[uuid] = now_s
        return True

    def with_health(self, now_s: float) -> tuple[Card, ...]:
        """Return all known cards with their health; an error no longer counts when none followed for `recover_s`."""
        self._xid_at = {uuid: at for uuid, at in self._xid_at.items() if now_s - at < self._recover_s}
        return tuple(
            replace(card, healthy=answers and card.uuid not in self._xid_at, answers=answers)
            for card in self.known()
            for answers in (card.uuid in self._answered,)
        )
