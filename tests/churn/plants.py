"""What a run must find: for each kind of violation a lie in the checker's readings, told again in each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from churn.findings import KINDS
from churn.ledger import whole_cards
from churn.records import Booking, ContainerRecord, PodRecord
from churn.windows import KILLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from churn.arithmetic import Amounts
    from churn.records import Reading
    from churn.windows import Window

PLANTED = "planted"
_REFUSED = PodRecord(
    uid=PLANTED,
    name=PLANTED,
    node="node",
    phase="Failed",
    reason="UnexpectedAdmissionError",
    owner="owner",
    owner_kind="ReplicaSet",
    app=PLANTED,
    containers=(ContainerRecord("main", 1, 1),),
)


@dataclass(slots=True)
class Plant:
    """The lie of one kind; of no kind, the truth."""

    kind: str
    totals: Mapping[str, Amounts]
    windows: Callable[[], Sequence[Window]]
    refused: bool = False
    """Whether the planted pod was refused already: it stays so."""

    def reading(self, reading: Reading) -> Reading:
        """Return a reading with the lie in it; the reading itself where there is nothing to lie about yet."""
        lie = _LIES.get(self.kind)
        if lie is None or reading.pods is None or not reading.bookings:
            return reading
        return lie(self, reading)

    def seen(self, cards: frozenset[str]) -> frozenset[str]:
        """Return what nvidia-smi listed, or the lie of it."""
        return frozenset(self.totals) - cards if self.kind == "wrong_card_seen" else cards

    def killing(self, reading: Reading, within_s: float) -> bool:
        """Return whether a kill is on, or ended so short a time ago."""
        begin_s, end_s = reading.at_s - within_s, reading.at_s
        return any(window.kind in KILLS and window.touches(begin_s, end_s) for window in self.windows())


def _living(reading: Reading, *, whole: bool = False) -> Booking | None:
    """Return the booking of a pod that runs on one card and shares it, or has it as a whole."""
    running = {pod.uid for pod in reading.pods or () if pod.running and not pod.deleting}
    for booking in reading.bookings or ():
        if booking.pod in running and len(booking.cards) == 1 and bool(whole_cards(booking)) == whole:
            return booking
    return None


def _changed(reading: Reading, booking: Booking, memory: frozenset[str]) -> Reading:
    bookings = (replace(other, memory=memory) if other is booking else other for other in reading.bookings or ())
    return replace(reading, bookings=tuple(bookings))


def _added(reading: Reading, *ids: str, core: Sequence[str] = ()) -> Reading:
    booking = Booking("planted", "main", frozenset(ids), frozenset(core))
    return replace(reading, bookings=(*(reading.bookings or ()), booking))


def _unit_twice(plant: Plant, reading: Reading) -> Reading:
    del plant
    booking = _living(reading)
    return _added(reading, *booking.memory) if booking else reading


def _two_cards(plant: Plant, reading: Reading) -> Reading:
    booking = _living(reading)
    if booking is None:
        return reading
    other = min(plant.totals.keys() - booking.cards)
    return _changed(reading, booking, memory=booking.memory | {f"{other}::m9999"})


def _over_card(plant: Plant, reading: Reading) -> Reading:
    card = min(plant.totals)
    return _added(reading, *(f"{card}::m{9000 + number}" for number in range(plant.totals[card].memory + 1)))


def _whole_shared(plant: Plant, reading: Reading) -> Reading:
    del plant
    booking = _living(reading)
    if booking is None:
        return reading
    card = min(booking.cards)
    return _added(reading, core=[f"{card}::c{9000 + number}" for number in range(100)])


def _refused(reading: Reading) -> Reading:
    return replace(reading, pods=(*(reading.pods or ()), _REFUSED), wanted={**reading.wanted, PLANTED: 1})


def _admission_failed(plant: Plant, reading: Reading) -> Reading:
    plant.refused = plant.refused or not plant.killing(reading, 10.0)
    return _refused(reading) if plant.refused else reading


def _not_running_again(plant: Plant, reading: Reading) -> Reading:
    plant.refused = plant.refused or plant.killing(reading, 0.0)
    return _refused(reading) if plant.refused else reading


def _pending_fits(plant: Plant, reading: Reading) -> Reading:
    del plant
    pod = PodRecord(uid=PLANTED, name=PLANTED, containers=(ContainerRecord("main", 1, 1),))
    return replace(reading, pods=(*(reading.pods or ()), pod))


def _placed_impossible(plant: Plant, reading: Reading) -> Reading:
    del plant
    pod = PodRecord(uid=PLANTED, name=PLANTED, node="node", containers=(ContainerRecord("main", 1, 101),))
    return replace(reading, pods=(*(reading.pods or ()), pod))


def _annotation_false(plant: Plant, reading: Reading) -> Reading:
    pods = (
        replace(pod, cards={name: frozenset(plant.totals) - cards for name, cards in (pod.cards or {}).items()})
        for pod in reading.pods or ()
    )
    return replace(reading, pods=tuple(pods))


def _records_differ(plant: Plant, reading: Reading) -> Reading:
    del plant
    bookings = (replace(booking, core=frozenset(sorted(booking.core)[1:])) for booking in reading.bookings or ())
    return replace(reading, bookings=tuple(bookings))


_LIES: Mapping[str, Callable[[Plant, Reading], Reading]] = {
    "unit_twice": _unit_twice,
    "two_cards": _two_cards,
    "over_card": _over_card,
    "whole_shared": _whole_shared,
    "admission_failed": _admission_failed,
    "not_running_again": _not_running_again,
    "pending_fits": _pending_fits,
    "placed_impossible": _placed_impossible,
    "annotation_false": _annotation_false,
    "records_differ": _records_differ,
}
PLANTS = tuple(KINDS)
