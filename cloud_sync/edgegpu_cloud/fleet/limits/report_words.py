"""What boxes say of requested items, as pages say it: by code and numbers, else in the box's own words; pure."""

from edgegpu_cloud.phrases import Phrase, Verbatim, listed, of_sentence, of_template, on_pages, phrase, phrase_n
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.uplink import CardFreeNumbers, ItemReport, ItemState, Numbers
from edgegpu_sync.rules.box_sentences import BOX_SENTENCES
from edgegpu_sync.rules.settle import NO_SHARING, PUT_ON, TAKEN_OFF
from edgegpu_sync.states import ResultCode

_MOST_CARDS = 8
_CONSTANT = {one.text: of_sentence(one.text) for one in (NO_SHARING, TAKEN_OFF, PUT_ON)}
"""Texts that are the same on every box of this version."""


def report_words(report: ItemReport) -> str:
    """Return what a box says of an item: its own words, which pages say by code and numbers where these say the same.

    What the numbers do not explain (a quota, a taint, another container) stands beside them as the box's words.
    """
    text = report.text or ""
    told = words_of_text(text)
    if not isinstance(told, Verbatim):
        return told
    if report.code != ResultCode.NO_ROOM:
        return told
    if report.numbers is not None:
        return on_pages(text, _of_numbers(report.numbers, text))
    if report.state is ItemState.FAILED and report.restored:
        whole = phrase("it had no room and was taken back: %(words)s", words=Verbatim(text))
        return on_pages(text, whole)
    return told


def words_of_text(text: str) -> str:
    """Return a text of a box as a phrase where agents of this version say it, else as the box's own words."""
    if text in _CONSTANT:
        return _CONSTANT[text]
    return _of_sentence(text) or (Verbatim(text) if text else "")


def _of_sentence(text: str) -> Phrase | None:
    """Return a sentence that agents of this version say; its reason stays the box's own words."""
    for one in BOX_SENTENCES:
        fields = one.read(text)
        if fields is not None:
            shown = {name: Verbatim(value) if name == "why" else value for name, value in fields.items()}
            return on_pages(text, of_template(one.template, shown))
    return None


def _of_numbers(numbers: Numbers, text: str) -> Phrase:
    whole = phrase("%(first)s; %(then)s", first=_needed(numbers), then=_free(numbers))
    if numbers.verdict == "fits_after_stop":
        return phrase(
            "there is room only when the app's own pods have gone, and nobody has allowed to stop them; %(why)s",
            why=whole,
        )
    return whole if _is_explained(numbers) else phrase("%(why)s; %(words)s", why=whole, words=Verbatim(text))


def _needed(numbers: Numbers) -> Phrase:
    """Return what each pod needs."""
    if numbers.need_core >= CORE_PER_CARD:
        cards = phrase_n("%(num)d whole empty card", "%(num)d whole empty cards", numbers.need_core // CORE_PER_CARD)
        return phrase_n(
            "%(num)d pod needs %(cards)s", "each of %(num)d pods needs %(cards)s", numbers.replicas, cards=cards
        )
    return phrase_n(
        "%(num)d pod needs %(units)s and core %(core)s on one card",
        "each of %(num)d pods needs %(units)s and core %(core)s on one card",
        numbers.replicas,
        units=_units(numbers.need_units),
        core=numbers.need_core,
    )


def _free(numbers: Numbers) -> Phrase:
    """Return what is free on the cards, once the app's own pods have gone."""
    if not numbers.cards:
        return phrase("no card is there for it")
    nodes = {card.node for card in numbers.cards}
    first = listed(_card(card, several=len(nodes) > 1) for card in numbers.cards[:_MOST_CARDS])
    more = len(numbers.cards) - _MOST_CARDS
    if more > 0:
        first = phrase("%(names)s and %(left)s more", names=first, left=more)
    return phrase("free without its own pods: %(cards)s", cards=first)


def _card(card: CardFreeNumbers, *, several: bool) -> Phrase:
    name = phrase("%(node)s card %(card)s", node=card.node, card=card.card)
    return phrase(
        "%(card)s has %(units)s and core %(core)s",
        card=name if several else phrase("card %(card)s", card=card.card),
        units=_units(card.free_units),
        core=card.free_core,
    )


def _units(number: int) -> Phrase:
    return phrase_n("%(num)d unit", "%(num)d units", number)


def _is_explained(numbers: Numbers) -> bool:
    """Whether the cards hold fewer of the pods than there are: then nothing else needs to be said."""
    if numbers.need_core >= CORE_PER_CARD:
        return sum(card.free_core >= CORE_PER_CARD for card in numbers.cards) < numbers.replicas
    return bool(numbers.cards) and sum(_pods_on(card, numbers) for card in numbers.cards) < numbers.replicas


def _pods_on(card: CardFreeNumbers, numbers: Numbers) -> int:
    """Return how many of the pods a card would hold."""
    asked = ((card.free_units, numbers.need_units), (card.free_core, numbers.need_core))
    return min((free // need for free, need in asked if need), default=numbers.replicas)
