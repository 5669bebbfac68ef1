"""The checker: takes a reading each second and says what no fault may bring about. No I/O; time comes with the reading.

What one file says at one moment (kubelet's checkpoint) counts at once. What is put together from several answers, or
passes through states that are allowed for a moment, counts once the next readings say it too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from churn.arithmetic import Amounts, possible
from churn.findings import Findings
from churn.ledger import booked_by_card, on_its_cards, shared_ids, whole_cards
from churn.podbook import PodBook
from churn.records import INIT, Booking, PodRecord, Reading
from churn.refusals import Refusals
from churn.waiting import Waiting
from churn.windows import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from churn.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long what may last; `after_s`: so long after a kill kubelet may still refuse pods because of it."""

    annotation_s: float = 10.0
    running_again_s: float = 30.0
    pending_s: float = 120.0
    after_s: float = 5.0
    confirm: int = 3
    """How many readings in a row must say what may pass."""


@dataclass(slots=True)
class Readings:
    """What the readings were worth."""

    count: int = 0
    ledgers: int = 0
    """How many had kubelet's checkpoint."""
    api_silent_s: float = 0.0
    """For how long the API server did not answer although no fault was on."""
    gap_most_s: float = 0.0
    """The longest time between two readings."""
    late_s: float = 0.0
    """How much the readings were late in all: this machine's stalls, not the product's."""


class Judge:
    """Takes readings in order; `findings` has what was wrong."""

    def __init__(self, totals: Mapping[str, Amounts], windows: Callable[[], Sequence[Window]], limits: Limits) -> None:
        """Remember what the cards have; `windows` returns the faults so far."""
        self._totals, self._limits = dict(totals), limits
        self._timeline = Timeline(windows, after_s=limits.after_s)
        self.findings = Findings(limits.confirm)
        self.book = PodBook()
        self.waiting = Waiting(self._totals, self.findings, limit_s=limits.pending_s)
        self.refusals = Refusals(self.book, self.findings, self._timeline, self.waiting, limit_s=limits.running_again_s)
        self.readings = Readings()
        self.split_bookings: set[str] = set()
        """Containers that were booked on several cards and did not start with that: the plugin refuses their start."""
        self._booked: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By container the ids that it has, and what was started in its place before it had them."""
        self.annotation_most_s = 0.0
        """The longest that an annotation was false, without the time in which somebody was away who corrects it."""
        self._before_s: float | None = None
        self._false_s: dict[str, float] = {}

    def take(self, reading: Reading) -> None:
        """Judge a reading."""
        began_s = self._before_s if self._before_s is not None else reading.at_s
        self._note(reading, began_s)
        if reading.pods is not None:
            self.book.learn(reading.pods)
        if reading.bookings is not None:
            self._judge_ledger(reading)
        if reading.pods is not None:
            self.refusals.judge(reading, began_s)
            self._judge_placed(reading)
            if reading.bookings is not None:
                self._judge_annotations(reading, began_s)
                if self._timeline.quiet(began_s, reading.at_s):
                    self._judge_amounts(reading)
                self.waiting.judge(reading)
        complete = reading.pods is not None and reading.bookings is not None
        self.findings.end_reading(complete=complete and self._timeline.quiet(began_s, reading.at_s))
        self._before_s = reading.at_s

    def take_seen(
        self, pod: PodRecord, container: str, *, seen: frozenset[str], booked: frozenset[str], at_s: float
    ) -> None:
        """Judge what nvidia-smi listed in a container, asked twice, between two equal readings of its booking."""
        self.findings.sample("wrong_card_seen")
        if seen != booked:
            text = f"{pod.text}/{container} sees {_names(seen)}, booked are {_names(booked)}"
            self.findings.violate("wrong_card_seen", at_s, f"{pod.uid}/{container}", text)

    def _note(self, reading: Reading, began_s: float) -> None:
        gap_s = reading.at_s - began_s
        self.readings.count += 1
        self.readings.ledgers += reading.bookings is not None
        self.readings.gap_most_s = max(self.readings.gap_most_s, gap_s)
        self.readings.late_s += max(0.0, gap_s - 1.0)
        if reading.pods is None:
            self.readings.api_silent_s += self._timeline.quiet_s(began_s, reading.at_s)

    # --- kubelet's checkpoint

    def _judge_ledger(self, reading: Reading) -> None:
        bookings = [booking for booking in reading.bookings or () if self.book.living(booking.pod)]
        self.findings.sample("unit_twice", len(bookings))
        for left, right, ids in shared_ids(bookings, self.book.kind):
            text = f"{self.book.text(left)} and {self.book.text(right)} have {len(ids)} ids, {min(ids)} among them"
            subject = f"{left.pod}/{left.container}+{right.pod}/{right.container}"
            self.findings.violate("unit_twice", reading.at_s, subject, text)
        for booking in bookings:
            self._judge_cards_of(booking, reading.at_s)
        for card, amounts in booked_by_card(bookings).items():
            self.findings.sample("over_card")
            total = self._totals.get(card, Amounts(0, 0))
            if amounts.memory > total.memory or amounts.core > total.core:
                text = f"{amounts} are booked on {card}, which has {total}"
                self.findings.violate("over_card", reading.at_s, card, text)
        self._judge_whole(bookings, reading.at_s)

    def _judge_cards_of(self, booking: Booking, at_s: float) -> None:
        request = self.book.request(booking)
        if request is None or not booking.ids:
            return
        self.findings.sample("two_cards")
        subject = f"{booking.pod}/{booking.container}"
        ids, earlier = self._booked.get(subject, (frozenset(), frozenset()))
        if ids != booking.ids:
            earlier = self.book.earlier(booking)
            self._booked[subject] = (booking.ids, earlier)
        if on_its_cards(booking, request):
            return
        # A kubelet that starts books anew what has ended meanwhile, while the API still has its last status.
        container = self.book.pods[booking.pod].started.get(booking.container)
        if container is None or container in earlier:
            self.split_bookings.add(subject)
        else:
            text = (
                f"{self.book.text(booking)} asks for {request.memory} and {request.core}, "
                f"has {len(booking.memory)} and {len(booking.core)} on {_names(booking.cards)}"
            )
            self.findings.violate("two_cards", at_s, subject, text)

    def _judge_whole(self, bookings: Sequence[Booking], at_s: float) -> None:
        for owner in bookings:
            for card in whole_cards(owner):
                self.findings.sample("whole_shared")
                for other in bookings:
                    if other.pod != owner.pod and card in other.cards:
                        text = f"{self.book.text(other)} is on {card}, which {self.book.text(owner)} has as a whole"
                        self.findings.violate("whole_shared", at_s, f"{owner.pod}+{other.pod}", text)

    # --- the scheduler's and the plugin's word

    def _judge_placed(self, reading: Reading) -> None:
        for pod in reading.pods or ():
            if pod.containers and not possible(pod.containers, self._totals):
                self.findings.sample("placed_impossible")
                if pod.node:
                    text = f"{pod.text} is bound to {pod.node}"
                    self.findings.violate("placed_impossible", reading.at_s, pod.uid, text)

    def _judge_annotations(self, reading: Reading, began_s: float) -> None:
        false_s: dict[str, float] = {}
        for booking in reading.bookings or ():
            pod = self.book.pods.get(booking.pod)
            if pod is None or not self.book.living(booking.pod) or not booking.ids or not pod.node:
                continue
            self.findings.sample("annotation_false")
            annotated = (pod.cards or {}).get(booking.container)
            if annotated == booking.cards:
                continue
            key = f"{booking.pod}/{booking.container}"
            false_s[key] = self._false_s.get(key, 0.0) + self._timeline.quiet_s(began_s, reading.at_s)
            self.annotation_most_s = max(self.annotation_most_s, false_s[key])
            if false_s[key] > self._limits.annotation_s:
                text = f"of {self.book.text(booking)}: {_names(annotated or ())}; booked are {_names(booking.cards)}"
                self.findings.violate("annotation_false", reading.at_s, key, text)
        self._false_s = false_s

    def _judge_amounts(self, reading: Reading) -> None:
        """Judge amounts in quiet time: kubelet knows at once that a container has ended, and the API once it hears."""
        by_pod: defaultdict[str, dict[str, Booking]] = defaultdict(dict)
        for booking in reading.bookings or ():
            by_pod[booking.pod][booking.container] = booking
        names = Counter((pod.namespace, pod.name) for pod in reading.pods or ())
        listed = {(entry.pod, entry.container): entry for entry in reading.listed or ()}
        for pod in reading.pods or ():
            if not pod.running or pod.ended or pod.deleting or self.refusals.refused(pod.uid):
                continue
            unique = names[pod.namespace, pod.name] == 1
            for request in pod.containers:
                booking = by_pod[pod.uid].get(request.name, Booking(pod.uid, request.name))
                if (len(booking.memory), len(booking.core)) != (request.memory, request.core):
                    text = (
                        f"{self.book.text(booking)} asks for {request.memory} and {request.core}, "
                        f"has {len(booking.memory)} and {len(booking.core)}"
                    )
                    self.findings.suspect("records_differ", reading.at_s, f"{pod.uid}/{request.name}", text)
                if reading.listed is not None and request.kind != INIT and unique:
                    entry = listed.get((f"{pod.namespace}/{pod.name}", request.name), Booking("", ""))
                    self._judge_listed(booking, entry, reading.at_s)

    def _judge_listed(self, booking: Booking, entry: Booking, at_s: float) -> None:
        self.findings.sample("records_differ")
        if entry.ids != booking.ids:
            text = (
                f"{self.book.text(booking)}: PodResources lists {len(entry.ids)} ids, "
                f"the checkpoint {len(booking.ids)}, not the same"
            )
            self.findings.suspect("records_differ", at_s, f"{booking.pod}/{booking.container} listed", text)


def _names(cards: Iterable[str]) -> str:
    return ", ".join(sorted(cards)) or "none"
