"""What follows from kubelet's bookings: who has what of which card. Pure; written without the product's code."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from churn.arithmetic import WHOLE, Amounts, cards_wanted
from churn.records import INIT, card_of_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from churn.records import Booking, ContainerRecord, PodRecord


def shared_ids(
    bookings: Sequence[Booking], kind: Callable[[Booking], str]
) -> Iterator[tuple[Booking, Booking, frozenset[str]]]:
    """Yield pairs of containers that have ids in common, but those of a pod whose init container hands them on.

    `kind` is empty while the API has not shown a pod: its own containers are judged once it has.
    """
    owners: defaultdict[str, list[Booking]] = defaultdict(list)
    for booking in bookings:
        for text in booking.ids:
            owners[text].append(booking)
    seen: set[tuple[str, str, str, str]] = set()
    for several in owners.values():
        for at, left in enumerate(several):
            for right in several[at + 1 :]:
                key = (left.pod, left.container, right.pod, right.container)
                handed_on = left.pod == right.pod and not {INIT, ""}.isdisjoint({kind(left), kind(right)})
                if key not in seen and not handed_on:
                    seen.add(key)
                    yield left, right, left.ids & right.ids


def on_its_cards(booking: Booking, request: ContainerRecord) -> bool:
    """Return whether a booking lies on one card, or on as many whole ones as were asked for."""
    if request.core < WHOLE:
        return len(booking.cards) == 1
    if not booking.core:  # kubelet books one resource after the other
        return len(booking.cards) <= cards_wanted(request)
    return booking.cards == whole_cards(booking) and len(booking.cards) == cards_wanted(request)


def whole_cards(booking: Booking) -> frozenset[str]:
    """Return the cards of which a container has all hundredths."""
    counts = Counter(card_of_id(text) for text in booking.core)
    return frozenset(card for card, count in counts.items() if count == WHOLE)


def booked_by_card(bookings: Iterable[Booking]) -> dict[str, Amounts]:
    """Return the units and hundredths that are booked on each card; what a pod hands on within itself counts once."""
    memory: defaultdict[str, set[str]] = defaultdict(set)
    core: defaultdict[str, set[str]] = defaultdict(set)
    for booking in bookings:
        memory[booking.pod] |= booking.memory
        core[booking.pod] |= booking.core
    units = Counter(card_of_id(text) for ids in memory.values() for text in ids)
    hundredths = Counter(card_of_id(text) for ids in core.values() for text in ids)
    return {card: Amounts(units[card], hundredths[card]) for card in units | hundredths}


def held_by(
    pods: Iterable[PodRecord], bookings: Iterable[Booking], totals: Mapping[str, Amounts]
) -> dict[str, Amounts] | None:
    """Return what bound pods hold of each card, by kubelet's bookings, else by the annotation; None: not known yet."""
    by_key = {(booking.pod, booking.container): booking for booking in bookings if booking.ids}
    memory: Counter[str] = Counter()
    core: Counter[str] = Counter()
    for pod in pods:
        keys = [(pod.uid, request.name) for request in pod.containers]
        for card, amounts in booked_by_card(by_key[key] for key in keys if key in by_key).items():
            memory[card] += amounts.memory
            core[card] += amounts.core
        for request in pod.containers:
            if (pod.uid, request.name) not in by_key:
                cards = (pod.cards or {}).get(request.name)
                if cards is None:
                    return None
                for card in cards:  # what an init container hands on counts twice here: for a moment, on the safe side
                    memory[card] += request.memory
                    core[card] += min(request.core, WHOLE)
    whole = {card for card, hundredths in core.items() if hundredths >= WHOLE}
    return {
        card: Amounts(total.memory if card in whole else memory[card], core[card]) for card, total in totals.items()
    }
