"""What a run must find: for each kind of violation a lie in the checker's readings, told again in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from churn.findings import KINDS
from churn.ledger import whole_cards
from churn.records import Booking, ContainerRecord, PodRecord
from churn.windows import KILLS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from churn.arithmetic import Amounts
    from churn.records import Reading
    from churn.windows import Window

_NOWHERE: Mapping[str, frozenset[str]] = {"main": frozenset()}


@dataclass(slots=True)
class Plants:
    """The lies of some kinds; of no kind, the truth."""

    kinds: Collection[str]
    totals: Mapping[str, Amounts]
    windows: Callable[[], Sequence[Window]]
    refused: set[str] = field(default_factory=set)
    """The kinds whose pod was refused already: it stays so."""

    def reading(self, reading: Reading) -> Reading:
        """Return a reading with the lies in it; the reading itself where there is nothing to lie about yet."""
        if reading.pods is None or not reading.bookings:
            return reading
        for kind in self.kinds:
            if kind in _LIES:
                reading = _LIES[kind](self, reading)
        return reading

    def seen(self, cards: frozenset[str]) -> frozenset[str]:
        """Return what nvidia-smi listed, or the lie of it."""
        return frozenset(self.totals) - cards if "wrong_card_seen" in self.kinds else cards

    def killing(self, reading: Reading, within_s: float) -> bool:
        """Return whether a kill is on, or ended so short a time ago."""
        begin_s, end_s = reading.at_s - within_s, reading.at_s
        return any(window.kind in KILLS and window.touches(begin_s, end_s) for window in self.windows())


def _pod(reading: Reading, kind: str, *, core: int = 1, reason: str = "") -> Reading:
    """Add a pod: one that is bound and waits, or one that kubelet refused."""
    pod = PodRecord(
        uid=f"planted {kind}",
        name=f"planted-{kind}",
        node="node",
        phase="Failed" if reason else "Pending",
        reason=reason,
        owner="owner",
        owner_kind="ReplicaSet",
        app=f"planted-{kind}",
        containers=(ContainerRecord("main", 1, core),),
        cards=_NOWHERE,
    )
    return replace(reading, pods=(*(reading.pods or ()), pod), wanted={**reading.wanted, pod.app: 1})


def _living(reading: Reading) -> Booking | None:
    """Return the booking of a pod that runs and shares its card."""
    running = {pod.uid for pod in reading.pods or () if pod.running and not pod.deleting}
    for booking in reading.bookings or ():
        if booking.pod in running and len(booking.cards) == 1 and not whole_cards(booking):
            return booking
    return None


def _changed(reading: Reading, booking: Booking, memory: frozenset[str]) -> Reading:
    bookings = (replace(other, memory=memory) if other is booking else other for other in reading.bookings or ())
    return replace(reading, bookings=tuple(bookings))


def _added(reading: Reading, kind: str, *, memory: Collection[str] = (), core: Collection[str] = ()) -> Reading:
    booking = Booking(f"planted {kind}", "main", frozenset(memory), frozenset(core))
    return replace(reading, bookings=(*(reading.bookings or ()), booking))


def _unit_twice(plants: Plants, reading: Reading) -> Reading:
    del plants
    booking = _living(reading)
    return _added(reading, "unit_twice", memory=booking.memory) if booking else reading


def _two_cards(plants: Plants, reading: Reading) -> Reading:
    booking = _living(reading)
    if booking is None:
        return reading
    other = min(plants.totals.keys() - booking.cards)
    return _changed(reading, booking, memory=booking.memory | {f"{other}::m9999"})


def _over_card(plants: Plants, reading: Reading) -> Reading:
    card = min(plants.totals)
    count = plants.totals[card].memory + 1
    return _added(reading, "over_card", memory=[f"{card}::m{8000 + number}" for number in range(count)])


def _whole_shared(plants: Plants, reading: Reading) -> Reading:
    del plants
    booking = _living(reading)
    if booking is None:
        return reading
    card = min(booking.cards)
    return _added(reading, "whole_shared", core=[f"{card}::c{8000 + number}" for number in range(100)])


def _admission_failed(plants: Plants, reading: Reading) -> Reading:
    return _refused(reading, "admission_failed", plants, begins=not plants.killing(reading, 10.0))


def _not_running_again(plants: Plants, reading: Reading) -> Reading:
    return _refused(reading, "not_running_again", plants, begins=plants.killing(reading, 0.0))


def _refused(reading: Reading, kind: str, plants: Plants, *, begins: bool) -> Reading:
    if begins:
        plants.refused.add(kind)
    return _pod(reading, kind, reason="UnexpectedAdmissionError") if kind in plants.refused else reading


def _pending_fits(plants: Plants, reading: Reading) -> Reading:
    del plants
    return _pod(reading, "pending_fits")


def _placed_impossible(plants: Plants, reading: Reading) -> Reading:
    del plants
    return _pod(reading, "placed_impossible", core=101, reason="Evicted")


def _annotation_false(plants: Plants, reading: Reading) -> Reading:
    pods = (
        replace(pod, cards={name: frozenset(plants.totals) - cards for name, cards in (pod.cards or {}).items()})
        for pod in reading.pods or ()
    )
    return replace(reading, pods=tuple(pods))


def _records_differ(plants: Plants, reading: Reading) -> Reading:
    """Take a hundredth from each real booking."""
    del plants
    bookings = (
        booking if booking.pod.startswith("planted") else replace(booking, core=frozenset(sorted(booking.core)[1:]))
        for booking in reading.bookings or ()
    )
    return replace(reading, bookings=tuple(bookings))


_LIES: Mapping[str, Callable[[Plants, Reading], Reading]] = {
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


def kinds_of(text: str) -> tuple[str, ...]:
    """Return the kinds that words with commas name; `all`: each.

    Raises:
        ValueError: there is no such kind.
    """
    kinds = tuple(KINDS) if text == "all" else tuple(word for word in text.split(",") if word)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"no violation is called {unknown[0]}: there are {', '.join(KINDS)}")
    return kinds
