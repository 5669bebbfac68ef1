"""The health of the cards: which are out of order and why, and when they are in order again; time is passed in."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.verdicts import CardVerdicts
from edgegpu_plugin.cards.xids import Xid, XidRecovery, of_code

SILENT = "the driver gets no answer from it: a reboot brings back a card that fell off the bus"


class CardHealth:
    """The cards seen since the process began: which answer no more, which reported an error, which are released."""

    def __init__(self, recover_s: float, verdicts: CardVerdicts | None = None) -> None:
        self._recover_s = recover_s
        self._verdicts = CardVerdicts() if verdicts is None else verdicts
        self._answered: dict[str, Card] = {}
        self._silent: dict[str, Card] = {}
        self._errors: dict[str, tuple[float, Xid]] = {}
        self._released: set[str] = set()

    @property
    def missing(self) -> bool:
        """Whether a card that was there does not answer."""
        return any(not self.is_released(card) for card in self._silent.values())

    @property
    def has_none_left(self) -> bool:
        """Whether all cards that were there are released; nobody knows before the first list."""
        known = self.known()
        return bool(known) and all(map(self.is_released, known))

    def is_released(self, card: Card) -> bool:
        """Return whether an operator has had this card, or the GPU that it is part of, let go of."""
        return not self._released.isdisjoint({card.uuid, card.parent or card.uuid})

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

    def report_xid(self, uuids: Iterable[str], code: int, now_s: float) -> Xid:
        """Record an error that the driver reported for these cards, or GPUs with all parts; return what it means."""
        xid, cards = of_code(code), tuple(uuids)
        if xid.recovery is XidRecovery.RESET:
            self._verdicts.add(cards, code)
        elif xid.recovery is XidRecovery.QUIET:
            self._errors |= dict.fromkeys(cards, (now_s, xid))
        return xid

    def release(self, gpu: str) -> None:
        """Let go of a GPU: neither it nor a part of it is offered until `accept`, or a reload of the driver."""
        self._released.add(gpu)

    def accept(self, gpu: str) -> None:
        """Take a GPU back, and forget its errors and those of its parts."""
        self._released.discard(gpu)
        cards = [gpu, *(card.uuid for card in self.known() if card.parent == gpu)]
        self._verdicts.clear(cards)
        for card in cards:
            self._errors.pop(card, None)

    def drop_reloaded(self) -> None:
        """Forget what a reload of the driver has ended."""
        if self._verdicts.drop_reloaded():
            self._released.clear()

    def with_health(self, now_s: float) -> tuple[Card, ...]:
        """Return all known cards with their health; an error of the kind `quiet` counts for `recover_s`."""
        self._errors = {uuid: error for uuid, error in self._errors.items() if now_s - error[0] < self._recover_s}
        return tuple(self._judged(card) for card in self.known())

    def _judged(self, card: Card) -> Card:
        is_released = self.is_released(card)
        answers = is_released or card.uuid in self._answered
        problem = self._problem(card, is_released=is_released, answers=answers)
        return replace(card, healthy=not problem, answers=answers, problem=problem)

    def _problem(self, card: Card, *, is_released: bool, answers: bool) -> str:
        """Return why nothing new comes onto a card, with what ends that; empty where it may."""
        names = (card.uuid, card.parent or card.uuid)
        error = next((self._verdicts.cards[name] for name in names if name in self._verdicts.cards), None)
        fault = "" if error is None else f"XID {error}, {of_code(error).name}"
        if is_released:
            back = f"edgegpu has let go of it; after its reset: sudo edgegpu card accept {card.index}"
            return f"{fault}; {back}" if fault else back
        if fault:
            return (
                f"{fault}: out until a reset of the card (sudo edgegpu card release {card.index}), a reload of the "
                "driver or a reboot"
            )
        if not answers:
            return SILENT
        if (quiet := next((self._errors[name] for name in names if name in self._errors), None)) is not None:
            xid = quiet[1]
            return f"XID {xid.code}, {xid.name}: offered again after {self._recover_s:g} s without another error"
        return ""
