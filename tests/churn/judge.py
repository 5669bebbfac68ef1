"""The checker: takes a reading each second and says what no fault may bring about. No I/O; time comes with the reading.

What one file says at one moment (kubelet's checkpoint) counts at once. What is put together from several answers, or
passes through states that are allowed for a moment, counts once the next readings say it too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from churn.arithmetic import WHOLE, Amounts, asked, cards_wanted, fits, possible
from churn.records import INIT, Booking, ContainerRecord, Failure, PodRecord, Reading, card_of_id
from churn.windows import Window

KINDS = {
    "unit_twice": "a unit or hundredth of a card is booked for two containers that live",
    "two_cards": "a container lies on several cards, or asks for k whole ones and lies on others",
    "over_card": "more is booked on a card than it has",
    "whole_shared": "somebody is beside a container that has a whole card",
    "admission_failed": "kubelet refused a pod that was bound, and no kill was on",
    "not_running_again": "a pod that failed while a kill was on was not replaced in time",
    "pending_fits": "a pod waited too long although it would have fitted all the time",
    "placed_impossible": "a pod was bound that no card can serve",
    "annotation_false": "the annotation names other cards than kubelet has booked",
    "records_differ": "checkpoint, PodResources and request say different amounts",
    "wrong_card_seen": "nvidia-smi in a container lists other cards than those booked for it",
}
"""Each kind of violation, and what it means."""

KILLS = frozenset({"plugin_kill", "plugin_stop", "kubelet_kill", "kubelet_restart", "containerd_kill", "extender_kill"})
AWAY = KILLS | {"api_away"}
"""While one of these is on nobody can correct an annotation or start a pod: such time counts for no limit but Pending's."""
CARD_FAULTS = frozenset({"card_xid", "card_lost"})

REFUSED = ("UnexpectedAdmissionError", "OutOf")
"""How the reasons of kubelet's refusals begin."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long what may last; `after_s`: so long after a kill kubelet may still refuse pods because of it."""

    annotation_s: float = 10.0
    running_again_s: float = 30.0
    pending_s: float = 120.0
    after_s: float = 5.0
    confirm: int = 3
    """How many readings in a row must say what may pass."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be; `what` is about whom, and counts once however long it lasts."""

    kind: str
    at_s: float
    what: str
    text: str


@dataclass(slots=True)
class Debt:
    """A pod of a controller failed while a kill was on: its controller must have a new one that runs."""

    failed: PodRecord
    at_s: float
    counted_s: float = 0.0


@dataclass(slots=True)
class Checks:
    """How much was compared: a run without comparisons proves nothing."""

    readings: int = 0
    ledgers: int = 0
    annotations: int = 0
    listed: int = 0
    fits: int = 0
    seen: int = 0
    api_silent: int = 0
    replaced: int = 0
    replaced_most_s: float = 0.0
    pending_most_s: float = 0.0
    annotation_most_s: float = 0.0
    excused: Counter[str] = field(default_factory=Counter)
    """Refused pods by the kind of fault that they overlap."""


class Judge:
    """Takes readings in order; `violations` says what was wrong."""

    def __init__(self, totals: Mapping[str, Amounts], windows: Callable[[], Sequence[Window]], limits: Limits) -> None:
        """Remember what the cards have; `windows` returns the faults so far."""
        self._totals, self._windows, self._limits = dict(totals), windows, limits
        self.violations: list[Violation] = []
        self.checks = Checks()
        self.ran: set[str] = set()
        """UIDs of pods that were seen running, or to have succeeded."""
        self.pods: dict[str, PodRecord] = {}
        """Each pod that was ever seen, as it was last seen."""
        self._gone: set[str] = set()
        self._before_s: float | None = None
        self._streaks: dict[tuple[str, str], int] = {}
        self._fresh: set[tuple[str, str]] = set()
        self._since: dict[tuple[str, str], float] = {}
        self._known: set[tuple[str, str]] = set()
        self._failed: set[str] = set()
        self._unknown: dict[str, tuple[Failure, float, float]] = {}
        self._debts: list[Debt] = []
        self._paid: set[str] = set()

    # --- what happened

    def take(self, reading: Reading) -> None:
        """Judge a reading."""
        began_s = self._before_s if self._before_s is not None else reading.at_s
        self.checks.readings += 1
        self._fresh = set()
        if reading.pods is None:
            self.checks.api_silent += 1
        else:
            self._learn(reading.pods)
        if reading.bookings is not None:
            self._judge_ledger(reading)
        if reading.pods is not None:
            self._judge_failures(reading, began_s)
            self._judge_debts(reading, began_s)
            self._judge_placed(reading)
            if reading.bookings is not None:
                self._judge_annotations(reading, began_s)
                self._judge_amounts(reading)
                self._judge_pending(reading)
        # What was not said again is forgotten, but only by a reading that had all it takes to say it again.
        if reading.pods is not None and reading.bookings is not None:
            self._streaks = {key: count for key, count in self._streaks.items() if key in self._fresh}
        self._before_s = reading.at_s

    def take_seen(
        self, pod: PodRecord, container: str, *, seen: frozenset[str], booked: frozenset[str], at_s: float
    ) -> None:
        """Judge what nvidia-smi listed in a container, asked twice, between two equal readings of its booking."""
        self.checks.seen += 1
        if seen != booked:
            text = f"{pod.text}/{container} sees {_names(seen)}, booked are {_names(booked)}"
            self._violate("wrong_card_seen", at_s, f"{pod.uid}/{container}", text)

    def counts(self) -> dict[str, int]:
        """Return how many violations of each kind there were."""
        seen = Counter(violation.kind for violation in self.violations)
        return {kind: seen[kind] for kind in KINDS}

    def examples(self) -> dict[str, list[str]]:
        """Return the first violations of each kind that there was."""
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for violation in self.violations:
            if len(texts[violation.kind]) < _EXAMPLES:
                texts[violation.kind].append(f"{violation.at_s:.1f} s: {violation.text}")
        return dict(texts)

    @property
    def open_debts(self) -> int:
        """How many replacements are still waited for."""
        return len(self._debts)

    def living(self, uid: str) -> bool:
        """Return whether a pod lives as far as is known: one that the API has not shown yet does."""
        pod = self.pods.get(uid)
        return uid not in self._gone and (pod is None or not pod.ended)

    def _learn(self, pods: Iterable[PodRecord]) -> None:
        present = {pod.uid: pod for pod in pods}
        self._gone |= self.pods.keys() - present.keys()
        self.pods |= present
        self.ran |= {uid for uid, pod in present.items() if pod.running or pod.phase == "Succeeded"}

    def _violate(self, kind: str, at_s: float, what: str, text: str) -> None:
        if (kind, what) not in self._known:
            self._known.add((kind, what))
            self.violations.append(Violation(kind, at_s, what, text))

    def _confirm(self, kind: str, at_s: float, what: str, text: str) -> None:
        """Count a violation once several readings in a row say it."""
        key = (kind, what)
        if key in self._fresh:
            return
        self._fresh.add(key)
        self._streaks[key] = self._streaks.get(key, 0) + 1
        if self._streaks[key] >= self._limits.confirm:
            self._violate(kind, at_s, what, text)

    # --- the checkpoint, at once

    def _judge_ledger(self, reading: Reading) -> None:
        bookings = [one for one in reading.bookings or () if self.living(one.pod)]
        self.checks.ledgers += 1
        for left, right, ids in shared_ids(bookings, self._kind):
            text = f"{self._who(left)} and {self._who(right)} both have {len(ids)} ids, {min(ids)} among them"
            self._violate(
                "unit_twice", reading.at_s, f"{left.pod}/{left.container}+{right.pod}/{right.container}", text
            )
        for one in bookings:
            asks = self._request(one)
            if asks is not None and one.ids and not on_its_cards(one, asks):
                text = f"{self._who(one)} asks for {asks.memory} and {asks.core}, and lies on {_names(one.cards)}"
                self._violate("two_cards", reading.at_s, f"{one.pod}/{one.container}", text)
        self._judge_cards(bookings, reading.at_s)

    def _judge_cards(self, bookings: Sequence[Booking], at_s: float) -> None:
        for card, memory, core in booked_by_card(bookings):
            total = self._totals.get(card, Amounts(0, 0))
            if memory > total.memory or core > total.core:
                text = f"{memory} units and {core} hundredths of {total.memory} and {total.core} are booked on {card}"
                self._violate("over_card", at_s, card, text)
        for one in bookings:
            for card in whole_cards(one):
                for other in bookings:
                    beside = other.pod != one.pod and card in other.cards
                    if beside:
                        text = f"{self._who(other)} is on {card}, which {self._who(one)} has as a whole"
                        self._violate("whole_shared", at_s, f"{one.pod}+{other.pod}", text)

    def _kind(self, booking: Booking) -> str:
        asks = self._request(booking)
        return asks.kind if asks is not None else ""

    def _request(self, booking: Booking) -> ContainerRecord | None:
        pod = self.pods.get(booking.pod)
        return next((one for one in pod.containers if one.name == booking.container), None) if pod else None

    def _who(self, booking: Booking) -> str:
        pod = self.pods.get(booking.pod)
        return f"{pod.text if pod else booking.pod}/{booking.container}"

    # --- kubelet's refusals

    def _judge_failures(self, reading: Reading, began_s: float) -> None:
        for pod in reading.pods or ():
            if pod.phase == "Failed" and pod.reason.startswith(REFUSED):
                self._refused(Failure(pod.uid, pod.reason), began_s, reading.at_s)
        for failure in reading.failures:
            if failure.reason.startswith(REFUSED):
                self._refused(failure, began_s, reading.at_s)
        for failure, begin_s, end_s in list(self._unknown.values()):  # an event may come before its pod's list
            if failure.pod in self.pods:
                del self._unknown[failure.pod]
                self._refused(failure, begin_s, end_s)

    def _refused(self, failure: Failure, begin_s: float, end_s: float) -> None:
        if failure.pod in self._failed:
            return
        pod = self.pods.get(failure.pod)
        if pod is None:
            self._unknown.setdefault(failure.pod, (failure, begin_s, end_s))
            return
        self._failed.add(failure.pod)
        if cause := self._excuse(begin_s, end_s):
            self.checks.excused[cause] += 1
            if pod.owner:
                self._debts.append(Debt(pod, end_s))
            return
        text = f"{pod.text}: {failure.reason} {failure.text[:300]}"
        self._violate("admission_failed", end_s, failure.pod, text)

    def _excuse(self, begin_s: float, end_s: float) -> str:
        """Return the kind of the fault because of which kubelet may have refused a pod in that time; else nothing.

        A card's fault is one when it begins: the scheduler may have bound a pod to it a moment before it was seen.
        """
        after_s = self._limits.after_s
        for window in self._windows():
            if window.kind in KILLS and window.touches(begin_s - after_s, end_s):
                return window.kind
        for window in self._windows():
            at_s = window.begin_s
            if window.kind in CARD_FAULTS and begin_s - after_s <= at_s <= end_s:
                return window.kind
        return ""

    def _judge_debts(self, reading: Reading, began_s: float) -> None:
        for debt in list(self._debts):
            paying = self._replacement(debt, reading.pods or ())
            if paying is not None and _runs(paying):
                self._paid.add(paying.uid)
                self._debts.remove(debt)
                self.checks.replaced += 1
                self.checks.replaced_most_s = max(self.checks.replaced_most_s, debt.counted_s)
            elif self._owes_nothing(debt, reading):
                self._debts.remove(debt)
            elif self._time_counts(debt, paying, reading):
                debt.counted_s += self._quiet_s(began_s, reading.at_s)
                if debt.counted_s > self._limits.running_again_s:
                    text = f"{debt.failed.text} of {debt.failed.owner_kind} failed at {debt.at_s:.1f} s; no other runs"
                    self._violate("not_running_again", reading.at_s, debt.failed.uid, text)
                    self._debts.remove(debt)

    def _replacement(self, debt: Debt, pods: Iterable[PodRecord]) -> PodRecord | None:
        """Return the pod that takes the failed one's place: of the same workload, it came later; one that runs first."""
        order = list(self.pods)
        newer = set(order[order.index(debt.failed.uid) + 1 :]) - self._paid
        some = [
            p for p in pods if p.app == debt.failed.app and p.uid in newer and not p.deleting and p.phase != "Failed"
        ]
        return min(some, key=lambda pod: not _runs(pod), default=None)

    @staticmethod
    def _owes_nothing(debt: Debt, reading: Reading) -> bool:
        """Return whether the workload is gone, or has as many pods as it is to have."""
        have = sum(_runs(pod) and not pod.deleting for pod in reading.pods or () if pod.app == debt.failed.app)
        return have >= reading.wanted.get(debt.failed.app, 0)

    def _time_counts(self, debt: Debt, paying: PodRecord | None, reading: Reading) -> bool:
        """Return whether a new pod could run now.

        The Job controller waits for 10 s and more, doubled each time, before it makes one.
        """
        if paying is None:
            return debt.failed.owner_kind != "Job"
        return self._may_run(paying, reading)

    def _may_run(self, pod: PodRecord, reading: Reading) -> bool:
        return bool(pod.node) or self._would_fit(pod, reading)

    def _quiet_s(self, begin_s: float, end_s: float) -> float:
        """Return how much of a time no kill was on."""
        if any(w.kind in AWAY and w.touches(begin_s, end_s) for w in self._windows()):
            return 0.0
        return end_s - begin_s

    # --- the scheduler's and the plugin's word

    def _judge_placed(self, reading: Reading) -> None:
        for pod in reading.pods or ():
            if pod.node and pod.containers and not possible(pod.containers, self._totals):
                self._violate("placed_impossible", reading.at_s, pod.uid, f"{pod.text} is bound to {pod.node}")

    def _judge_annotations(self, reading: Reading, began_s: float) -> None:
        lasting: dict[tuple[str, str], float] = {}
        for one in reading.bookings or ():
            pod = self.pods.get(one.pod)
            if pod is None or not self.living(one.pod) or not one.ids or not pod.node:
                continue
            self.checks.annotations += 1
            told = (pod.cards or {}).get(one.container)
            if told == one.cards:
                continue
            key = ("annotation", f"{one.pod}/{one.container}")
            lasting[key] = self._since.get(key, 0.0) + self._quiet_s(began_s, reading.at_s)
            self.checks.annotation_most_s = max(self.checks.annotation_most_s, lasting[key])
            if lasting[key] > self._limits.annotation_s:
                text = f"{self._who(one)} is told on {_names(told or ())}, booked are {_names(one.cards)}"
                self._violate("annotation_false", reading.at_s, key[1], text)
        self._since = {key: since for key, since in self._since.items() if key[0] != "annotation"} | lasting

    def _judge_amounts(self, reading: Reading) -> None:
        by_pod: defaultdict[str, dict[str, Booking]] = defaultdict(dict)
        for one in reading.bookings or ():
            by_pod[one.pod][one.container] = one
        names = Counter((pod.namespace, pod.name) for pod in reading.pods or ())
        listed = None if reading.listed is None else {(one.pod, one.container): one for one in reading.listed}
        for pod in reading.pods or ():
            if not pod.running or pod.ended or pod.deleting:
                continue
            for asks in pod.containers:
                one = by_pod[pod.uid].get(asks.name, Booking(pod.uid, asks.name))
                if (len(one.memory), len(one.core)) != (asks.memory, asks.core):
                    text = f"{self._who(one)} asks for {asks.memory} and {asks.core}, has {len(one.memory)} and {len(one.core)}"
                    self._confirm("records_differ", reading.at_s, f"{pod.uid}/{asks.name}", text)
                if listed is None or asks.kind == INIT or names[pod.namespace, pod.name] > 1:
                    continue
                self.checks.listed += 1
                said = listed.get((f"{pod.namespace}/{pod.name}", asks.name), Booking("", ""))
                if said.ids != one.ids:
                    text = f"{self._who(one)}: PodResources lists {len(said.ids)} ids, the checkpoint {len(one.ids)}, not the same"
                    self._confirm("records_differ", reading.at_s, f"{pod.uid}/{asks.name} listed", text)

    # --- who waits

    def _judge_pending(self, reading: Reading) -> None:
        lasting: dict[tuple[str, str], float] = {}
        for pod in reading.pods or ():
            if pod.phase != "Pending" or pod.deleting or not pod.containers:
                continue
            self.checks.fits += 1
            if not (pod.node or self._would_fit(pod, reading)):
                continue
            key = ("pending", pod.uid)
            lasting[key] = self._since.get(key, reading.at_s)
            waited_s = reading.at_s - lasting[key]
            self.checks.pending_most_s = max(self.checks.pending_most_s, waited_s)
            if waited_s > self._limits.pending_s:
                where = f"is bound to {pod.node} and does not start" if pod.node else "would fit"
                text = f"{pod.text} {where}: {[(one.memory, one.core, one.kind) for one in pod.containers]}"
                self._violate("pending_fits", reading.at_s, pod.uid, text)
        self._since = {key: since for key, since in self._since.items() if key[0] != "pending"} | lasting

    def _would_fit(self, pod: PodRecord, reading: Reading) -> bool:
        """Return whether a pod would surely fit: on one of the cards that are in order, and in the node's sum."""
        others = [p for p in reading.pods or () if p.node and not p.ended and p.uid != pod.uid]
        held = held_by(others, reading.bookings or (), self._totals)
        if held is None or reading.allocatable is None or not possible(pod.containers, self._totals):
            return False
        need = [asked(p.containers) for p in (*others, pod)]
        if sum(n.memory for n in need) > reading.allocatable[0] or sum(n.core for n in need) > reading.allocatable[1]:
            return False
        free = {
            card: Amounts(total.memory - held[card].memory, total.core - held[card].core)
            for card, total in self._totals.items()
            if card not in reading.out
        }
        return fits(pod.containers, free, self._totals)


def _runs(pod: PodRecord) -> bool:
    return pod.running or pod.phase == "Succeeded"


def shared_ids(
    bookings: Sequence[Booking], kind: Callable[[Booking], str]
) -> Iterable[tuple[Booking, Booking, frozenset[str]]]:
    """Yield pairs of containers that have ids in common, but those of a pod whose init container hands them on."""
    owners: defaultdict[str, list[Booking]] = defaultdict(list)
    for one in bookings:
        for text in one.ids:
            owners[text].append(one)
    seen: set[tuple[str, str, str, str]] = set()
    for several in owners.values():
        for at, left in enumerate(several):
            for right in several[at + 1 :]:
                key = (left.pod, left.container, right.pod, right.container)
                handed_on = left.pod == right.pod and INIT in {kind(left), kind(right)}
                if key not in seen and not handed_on:
                    seen.add(key)
                    yield left, right, left.ids & right.ids


def on_its_cards(one: Booking, asks: ContainerRecord) -> bool:
    """Return whether a booking lies on one card, or on as many whole ones as were asked for."""
    if asks.core < WHOLE:
        return len(one.cards) == 1
    if not one.core:  # kubelet books one resource after the other
        return len(one.cards) <= cards_wanted(asks)
    return one.cards == whole_cards(one) and len(one.cards) == cards_wanted(asks)


def whole_cards(one: Booking) -> frozenset[str]:
    """Return the cards of which a container has all hundredths."""
    return frozenset(card for card, count in Counter(card_of_id(text) for text in one.core).items() if count == WHOLE)


def booked_by_card(bookings: Iterable[Booking]) -> Iterable[tuple[str, int, int]]:
    """Yield the units and hundredths that are booked on each card; what a pod hands on within itself counts once."""
    memory: defaultdict[str, Counter[str]] = defaultdict(Counter)
    core: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in {one.pod for one in bookings}:
        own = [one for one in bookings if one.pod == pod]
        for into, ids in (
            (memory, {i for one in own for i in one.memory}),
            (core, {i for one in own for i in one.core}),
        ):
            for text in ids:
                into[card_of_id(text)][pod] += 1
    for card in memory.keys() | core.keys():
        yield card, memory[card].total(), core[card].total()


def held_by(
    pods: Iterable[PodRecord], bookings: Iterable[Booking], totals: Mapping[str, Amounts]
) -> dict[str, Amounts] | None:
    """Return what bound pods hold of each card, by kubelet's bookings or else by the annotation; None: not known yet."""
    by_key = {(one.pod, one.container): one for one in bookings if one.ids}
    memory: Counter[str] = Counter()
    core: Counter[str] = Counter()
    for pod in pods:
        booked = [by_key[pod.uid, one.name] for one in pod.containers if (pod.uid, one.name) in by_key]
        for card, units, hundredths in booked_by_card(booked):
            memory[card] += units
            core[card] += hundredths
        for one in pod.containers:
            if (pod.uid, one.name) not in by_key:
                cards = (pod.cards or {}).get(one.name)
                if cards is None:
                    return None
                for card in cards:  # what an init container hands on counts twice here: for a moment, on the safe side
                    memory[card] += one.memory
                    core[card] += min(one.core, WHOLE)
    whole = {card for card, hundredths in core.items() if hundredths >= WHOLE}
    return {
        card: Amounts(total.memory if card in whole else memory[card], core[card]) for card, total in totals.items()
    }


def _names(cards: Iterable[str]) -> str:
    return ", ".join(sorted(cards)) or "none"
