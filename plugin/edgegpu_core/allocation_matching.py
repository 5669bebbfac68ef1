"""Tells for which container kubelet's calls are, and which devices to prefer: the calls carry no pod name."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from edgegpu_core.deviceid import SEPARATOR, DeviceKind, card_of, count_by_card, parse
from edgegpu_core.ledger import Grant, Ledger
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView, WaitingContainer, asked, cards_so_far, planned
from edgegpu_core.placement import Placement, place, place_container
from edgegpu_core.request import ImpossibleRequest, PlaceableRequest, classify

PAIR_LIMIT_S = 2.0
"""The second call of a container follows the first within milliseconds; after this the first one's pod has failed."""


@dataclass(frozen=True, slots=True)
class GivenDevices:
    """Devices given since kubelet last wrote its checkpoint, and to whom, as far as is known."""

    kind: DeviceKind
    ids: tuple[str, ...]
    owner: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The container whose first call was answered and whose second is awaited."""

    key: tuple[str, str] | None
    """None while nobody knows which container it is."""
    at_s: float


@dataclass(frozen=True, slots=True)
class AllocationTarget:
    """Where a container's devices shall lie: cards with how many on each, and who it is."""

    cards: tuple[tuple[str, int], ...]
    want: WaitingContainer | None
    guessed: bool = False
    """Nobody chose the card before: the plugin did, by first fit."""
    view: NodeView | None = field(default=None, repr=False, compare=False)
    """The node as the question found it, for what must lie elsewhere."""

    def spare(self, kind: DeviceKind) -> dict[str, int]:
        """Return how many devices of each card are promised to nobody."""
        if self.view is None:
            return {}
        free = self.view.free()
        counts = free.memory if kind is DeviceKind.MEMORY else free.core
        return {slot.uuid: count for slot, count in zip(self.view.slots, counts, strict=True)}

    def booked(self) -> frozenset[str]:
        """Return the ids that pods hold."""
        if self.view is None:
            return frozenset()
        ledger = self.view.ledger
        grants = (grant for uid in ledger.pods() for grant in ledger.grants(uid).values())
        return frozenset(text for grant in grants for ids in grant.ids.values() for text in ids)


class AllocationMatcher:
    """Follows kubelet's calls. Not thread-safe: the caller holds its lock over each method.

    Leans on kubelet (devicemanager, 1.33): one pod is admitted at a time; a container's resources are asked in random
    order, each GetPreferredAllocation before its Allocate; the checkpoint is written after the container's last one.
    """

    def __init__(self) -> None:
        self._given: list[GivenDevices] = []
        self._pair: _Pair | None = None

    def forget(self) -> None:
        """Drop what was given: kubelet wrote its checkpoint, which says it better, or kubelet started anew."""
        self._given.clear()
        self._pair = None

    def add_to(self, ledger: Ledger, live: Container[str]) -> None:
        """Book what was given since the last checkpoint.

        A half that a pod was left with by a failed admission goes with the pod: kubelet writes no checkpoint then, and
        lets go of it by itself before it admits the next one.

        Args:
            ledger: kubelet's records.
            live: kubelet's UIDs of the pods that have not ended.
        """
        for number, given in enumerate(self._given):
            uid, container = given.owner or (f"unknown-{number}", "")
            if given.owner is None or uid in live:
                ledger.add(uid, container, given.kind, given.ids)

    def unwritten(self) -> frozenset[str]:
        """Return kubelet's UIDs of the pods that were given something which kubelet has not written down yet."""
        return frozenset(given.owner[0] for given in self._given if given.owner is not None)

    def prefer(
        self, kind: DeviceKind, size: int, must_include: Sequence[str], view: NodeView, *, now_s: float
    ) -> AllocationTarget:
        """Say where `size` devices shall lie; the want is None when no pod is known that asks for so many."""
        want = self._identify(kind, size, must_include, view, now_s=now_s)
        if must_include:
            return _target(kind, size, tuple(count_by_card(must_include)), want, view)
        if want is None:
            return AllocationTarget(self._guess_unknown(kind, size, view, now_s=now_s), None, guessed=True, view=view)
        cards = _cards_so_far(want, view) or _promised(want, view)
        if cards:
            return _target(kind, size, cards, want, view)
        return replace(_target(kind, size, _guess(want, view), want, view), guessed=True)

    def asking(self, kind: DeviceKind, size: int, view: NodeView, *, now_s: float) -> tuple[WaitingContainer, ...]:
        """Return every container that an Allocate may be for; nothing is recorded.

        The second call of a container may be for that one alone, and for none where the first was taken for another's.
        """
        wants = tuple(want for want in view.wants() if want.lacks(kind) and asked(want.container, kind) == size)
        if self._pair is None or self._failed(kind, view) is not None or now_s - self._pair.at_s > PAIR_LIMIT_S:
            return wants
        return tuple(want for want in wants if want.key == self._pair.key)

    def allocated(
        self, kind: DeviceKind, ids: tuple[str, ...], view: NodeView, *, now_s: float
    ) -> WaitingContainer | None:
        """Record an Allocate; returns the container that it was for, as far as can be told."""
        want = self._identify(kind, len(ids), ids, view, now_s=now_s)
        failed = self._failed(kind, view)
        if failed is not None:
            self._given.remove(failed)
            self._pair = None
        first = self._first_call()
        if first is not None and want is not None and want.grant.ids.get(kind.other) == self._given[first].ids:
            self._given[first] = replace(self._given[first], owner=want.key)
        self._given.append(GivenDevices(kind, ids, None if want is None else want.key))
        if want is None or want.lacks(kind.other):
            self._pair = _Pair(None if want is None else want.key, now_s)
        else:
            self._pair = None
        return want

    def _identify(
        self, kind: DeviceKind, size: int, ids: Sequence[str], view: NodeView, *, now_s: float
    ) -> WaitingContainer | None:
        failed = self._failed(kind, view)
        everyone = [_without(want, failed) for want in view.wants()]
        wants = [want for want in everyone if want.lacks(kind) and asked(want.container, kind) == size]
        reused = _holder(kind, ids, wants, view)
        if reused is not None:
            return reused
        if self._pair is not None and failed is None and now_s - self._pair.at_s <= PAIR_LIMIT_S:
            same = next((want for want in wants if want.key == self._pair.key), None)
            return same or self._mistaken(kind, wants, view)
        halfway = [want for want in wants if want.grant.ids]
        started = [want for want in wants if want.started]
        card = card_of(ids[0]) if ids else ""
        return _first(halfway or started or wants, card, view)

    def _first_call(self) -> int | None:
        """Return which of the given is the first half of the container whose second half is awaited."""
        mine = [i for i, given in enumerate(self._given) if self._pair is not None and given.owner == self._pair.key]
        return mine[-1] if mine else None

    def _failed(self, kind: DeviceKind, view: NodeView) -> GivenDevices | None:
        """Return the first half whose second will not come: its pod has ended, or it is asked for once more."""
        index = self._first_call()
        given = None if index is None else self._given[index]
        if given is None or given.kind is kind:
            return given
        return None if given.owner is None or given.owner[0] in view.pods else given

    def _mistaken(self, kind: DeviceKind, wants: list[WaitingContainer], view: NodeView) -> WaitingContainer | None:
        """The first call was taken for another container: find the one that fits both, as if it held the first."""
        index = self._first_call()
        given = None if index is None else self._given[index]
        if given is not None and given.kind is kind.other:
            fitting = [
                want for want in wants if want.lacks(given.kind) and asked(want.container, given.kind) == len(given.ids)
            ]
            right = _first(fitting, card_of(given.ids[0]), view)
            if right is not None:
                return replace(right, grant=right.grant.with_ids(given.kind, given.ids))
        return _first(wants, "", view)

    def _guess_unknown(
        self, kind: DeviceKind, size: int, view: NodeView, *, now_s: float
    ) -> tuple[tuple[str, int], ...]:
        """Choose for a container of which only one amount is known: where its first half went, or by first fit."""
        first = self._first_call()
        if first is not None and self._pair is not None and now_s - self._pair.at_s <= PAIR_LIMIT_S:
            given = self._given[first]
            if given.owner is None and given.kind is kind.other:
                return _on_cards(kind, size, tuple(count_by_card(given.ids)), None, view)
        if kind is DeviceKind.MEMORY:
            ask = PlaceableRequest(1, size, 0, whole=False)
        elif size >= CORE_PER_CARD and size % CORE_PER_CARD == 0:
            ask = PlaceableRequest(size // CORE_PER_CARD, 0, CORE_PER_CARD, whole=True)
        else:
            ask = PlaceableRequest(1, 0, min(size, CORE_PER_CARD), whole=False)
        shares = place_container(ask, view.free(), view.policy)
        if shares is None:
            return ()
        return _on_cards(kind, size, tuple(share.card for share in shares), None, view)


def pick(available: Sequence[str], must_include: Sequence[str], size: int, target: AllocationTarget) -> list[str]:
    """Choose exactly `size` ids, `must_include` among them: on the target's cards, and elsewhere only in need.

    What lies elsewhere comes from what is promised to nobody, and there from the card with the most ids left, so that
    a container that fits nowhere (and is refused at its start) robs nobody and breaks up as few cards as can be.

    On each card the ids come first that nobody holds. kubelet's `available` may have others: when it collects in the
    middle of an admission, since somebody asks PodResources, it forgets what that container has just been given
    (`UpdateAllocatedDevices` makes `allocatedDevices` anew of what is booked; 1.33).
    """
    booked = target.booked()

    def in_order(ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda text: (text in booked, text))

    chosen = list(must_include[:size])
    taken = set(chosen)
    on_card = count_by_card(chosen)
    for card, count in target.cards:
        wanted = min(count - on_card.get(card, 0), size - len(chosen))
        if wanted > 0:
            prefix = card + SEPARATOR
            ids = [text for text in available if text.startswith(prefix) and text not in taken]
            chosen += in_order(ids)[:wanted]
    if len(chosen) < size:
        chosen += _elsewhere(in_order(available), frozenset(chosen), size - len(chosen), target)
    return chosen


def _elsewhere(available: Sequence[str], taken: frozenset[str], count: int, target: AllocationTarget) -> list[str]:
    """Choose the rest, on each card in the given order: what is left on the target's, then from the fullest card on."""
    by_card: dict[str, list[str]] = {}
    for text in available:
        if text not in taken:
            by_card.setdefault(card_of(text), []).append(text)
    targets = [card for card, _ in target.cards]
    spare = target.spare(parse(available[0]).kind) if by_card else {}

    def rank(card: str) -> tuple[bool, int, int, str]:
        return (card not in targets, -min(spare.get(card, 0), len(by_card[card])), -len(by_card[card]), card)

    cards = sorted(by_card, key=rank)
    unpromised = [text for card in cards for text in by_card[card][: spare.get(card, 0)]]
    promised = [text for card in cards for text in by_card[card][spare.get(card, 0) :]]
    return (unpromised + promised)[:count]


def _without(want: WaitingContainer, failed: GivenDevices | None) -> WaitingContainer:
    """Return the want without a first half that was taken for its own and went to a container that has failed."""
    if failed is None or want.key != failed.owner:
        return want
    return replace(want, grant=Grant({kind: ids for kind, ids in want.grant.ids.items() if kind is not failed.kind}))


def _holder(
    kind: DeviceKind, ids: Sequence[str], wants: list[WaitingContainer], view: NodeView
) -> WaitingContainer | None:
    """Return the want of the pod that holds some of these ids already: an init container's devices are reused."""
    if not ids:
        return None
    for want in wants:
        if want.started and any(
            ids[0] in grant.ids.get(kind, ()) for grant in view.ledger.grants(want.pod.kubelet_uid).values()
        ):
            return want
    return None


def _first(wants: list[WaitingContainer], card: str, view: NodeView) -> WaitingContainer | None:
    """Return the best guess: one that is promised this card, then any that is promised one, then the earliest."""

    def rank(want: WaitingContainer) -> tuple[bool, bool]:
        promised = _promised(want, view)
        return (bool(card) and card not in promised, not promised)

    return min(wants, key=rank, default=None)


def _promised(want: WaitingContainer, view: NodeView) -> tuple[str, ...]:
    return view.promises.get(want.pod.kubelet_uid, {}).get(want.container.name, ())


def _cards_so_far(want: WaitingContainer, view: NodeView) -> tuple[str, ...]:
    """Return the cards that the container's other resource lies on, or those of its pod's GPU init container."""
    if want.grant.ids:
        return cards_so_far(want.grant, _promised(want, view))
    plan = planned(want.pod.containers, view.model)
    if not isinstance(plan, ImpossibleRequest) and plan.one_card:
        return next((grant.cards() for grant in view.ledger.grants(want.pod.kubelet_uid).values()), ())
    return ()


def _target(
    kind: DeviceKind, size: int, cards: tuple[str, ...], want: WaitingContainer | None, view: NodeView
) -> AllocationTarget:
    return AllocationTarget(_on_cards(kind, size, cards, want, view), want, view=view)


def _on_cards(
    kind: DeviceKind, size: int, cards: tuple[str, ...], want: WaitingContainer | None, view: NodeView
) -> tuple[tuple[str, int], ...]:
    """Return how many devices of a resource go on each of the cards: hundreds of core, memory spread evenly."""
    if len(cards) < 2:  # noqa: PLR2004  (one card takes all)
        return tuple((card, size) for card in cards)
    if kind is DeviceKind.CORE and size == CORE_PER_CARD * len(cards):
        return tuple((card, CORE_PER_CARD) for card in cards)
    cards_wanted = max(1, want.container.request.core // CORE_PER_CARD) if want is not None else len(cards)
    parts = PlaceableRequest(max(cards_wanted, len(cards)), size, CORE_PER_CARD, whole=True).memory_parts()
    units = {slot.uuid: slot.units for slot in view.slots}
    larger_first = sorted(cards, key=lambda card: -units.get(card, 0))
    return tuple(zip(larger_first, parts, strict=False))


def _guess(want: WaitingContainer, view: NodeView) -> tuple[str, ...]:
    """Choose cards where nobody did: for the pod as a whole while it is untouched, else for the container."""
    free = view.free(without=want.pod.kubelet_uid if not view.ledger.grants(want.pod.kubelet_uid) else "")
    policy = want.pod.policy or view.policy
    plan = planned(want.pod.containers, view.model)
    if not isinstance(plan, ImpossibleRequest) and not want.started:
        placed = place(plan, free, policy)
        if isinstance(placed, Placement):
            return placed.cards[want.container.name]
    ask = classify(want.container.request, view.model)
    if isinstance(ask, ImpossibleRequest):
        ask = PlaceableRequest(
            1, want.container.request.memory_units, min(want.container.request.core, CORE_PER_CARD), whole=False
        )
    shares = place_container(ask, free, policy)
    return () if shares is None else tuple(share.card for share in shares)
