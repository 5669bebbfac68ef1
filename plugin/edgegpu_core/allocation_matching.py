"""Matching of kubelet's allocation calls, which carry no pod name, to containers, and the choice of their devices."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from edgegpu_core.choices.pod_choice import PodChoice
from edgegpu_core.deviceid import SEPARATOR, DeviceKind, card_of, count_by_card, parse
from edgegpu_core.ledger import Grant, Ledger
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView, WaitingContainer, asked, cards_so_far, planned
from edgegpu_core.placement import Placement, place, place_container
from edgegpu_core.request import ImpossibleRequest, PlaceableRequest, classify

PAIR_LIMIT_S = 2.0
"""A container's second call follows its first within milliseconds; after this time the pod has failed."""


@dataclass(frozen=True, slots=True)
class GivenDevices:
    """Devices given since kubelet last wrote its checkpoint, with the pod UID and container if they are known."""

    kind: DeviceKind
    ids: tuple[str, ...]
    owner: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The container whose first call was answered and whose second is awaited."""

    key: tuple[str, str] | None
    """None while the container is unknown."""
    at_s: float
    choices: frozenset[PodChoice]
    """The choices of the pods that the first call may have been for."""


@dataclass(frozen=True, slots=True)
class AllocationTarget:
    """Where a container's devices shall lie: the number on each card, and the container if it is known."""

    cards: tuple[tuple[str, int], ...]
    want: WaitingContainer | None
    guessed: bool = False
    """Whether the plugin chose the card, because no scheduler had."""
    view: NodeView | None = field(default=None, repr=False, compare=False)
    """The node at the time of the call, for devices that must lie on other cards."""

    def spare(self, kind: DeviceKind) -> dict[str, int]:
        """Return how many devices of each card are neither held nor promised."""
        if self.view is None:
            return {}
        free = self.view.free()
        counts = free.memory if kind is DeviceKind.MEMORY else free.core
        return {slot.uuid: count for slot, count in zip(self.view.slots, counts, strict=True)}

    def free_first(self, card: str, ids: Iterable[str]) -> list[str]:
        """Return ids of one card in order, those that no pod holds first; only this card's grants are read."""
        held = frozenset[str]() if self.view is None else self.view.ledger.ids(card=card)
        return sorted(ids, key=lambda text: (text in held, text))


class AllocationMatcher:
    """The matcher of kubelet's calls to containers. Not thread-safe: the caller holds its lock over each method.

    It relies on kubelet (devicemanager, 1.33): kubelet admits one pod at a time. It asks for a container's resources
    in random order, each GetPreferredAllocation before its Allocate. It writes the checkpoint after the last Allocate
    of a container.
    """

    def __init__(self) -> None:
        self._given: list[GivenDevices] = []
        self._pair: _Pair | None = None

    def forget(self) -> None:
        """Forget the given devices, when kubelet has written its checkpoint, which has them, or has started anew."""
        self._given.clear()
        self._pair = None

    def add_to(self, ledger: Ledger, live: Container[str]) -> None:
        """Book the devices that were given since the last checkpoint.

        When an admission fails after a container's first call, the devices of that call are dropped with the pod:
        kubelet writes no checkpoint then, and frees them before it admits the next pod.

        Args:
            ledger: kubelet's records, to which the devices are added.
            live: kubelet's UIDs of the pods that have not ended.
        """
        for number, given in enumerate(self._given):
            uid, container = given.owner or (f"unknown-{number}", "")
            if given.owner is None or uid in live:
                ledger.add(uid, container, given.kind, given.ids)

    def unwritten(self) -> frozenset[str]:
        """Return kubelet's UIDs of the pods with devices that kubelet has not written to its checkpoint yet."""
        return frozenset(given.owner[0] for given in self._given if given.owner is not None)

    def prefer(
        self, kind: DeviceKind, size: int, must_include: Sequence[str], view: NodeView, *, now_s: float
    ) -> AllocationTarget:
        """Return where `size` devices shall lie; its `want` is None when no known container asks for so many."""
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
        """Return every container that an Allocate may be for, without recording the call.

        The second call is for the container of the first call alone. It matches none when the first call was attributed
        to a wrong container.
        """
        wants = tuple(
            want for want in view.waiting_containers() if want.lacks(kind) and asked(want.container, kind) == size
        )
        if self._pair is None or self._failed(kind, view) is not None or now_s - self._pair.at_s > PAIR_LIMIT_S:
            return wants
        return tuple(want for want in wants if want.key == self._pair.key)

    def choices(self, kind: DeviceKind, size: int, view: NodeView, *, now_s: float) -> frozenset[PodChoice]:
        """Return the choices of every pod that an Allocate may be for, without recording the call.

        Those of a second call are those of its first: kubelet puts both answers together, and they must agree. Where
        the pod that the first call was taken for has ended, this may be the second call of another that asks for both,
        or a first one.
        """
        pair = self._pair if self._pair is not None and now_s - self._pair.at_s <= PAIR_LIMIT_S else None
        failed = self._failed(kind, view)
        if pair is not None and failed is None:
            return pair.choices
        wants = self.asking(kind, size, view, now_s=now_s)
        found = frozenset(want.pod.choice for want in wants)
        if pair is None or failed is None or failed.kind is kind:
            return found
        return found | pair.choices if any(_asked_for(want, failed) for want in wants) else found

    def allocated(
        self, kind: DeviceKind, ids: tuple[str, ...], view: NodeView, *, now_s: float
    ) -> WaitingContainer | None:
        """Record an Allocate and return the container that it was for; None when that is unknown."""
        want = self._identify(kind, len(ids), ids, view, now_s=now_s)
        choices = self.choices(kind, len(ids), view, now_s=now_s)
        failed = self._failed(kind, view)
        if failed is not None:
            self._given.remove(failed)
            self._pair = None
        first = self._first_call()
        if first is not None and want is not None and want.grant.ids.get(kind.other) == self._given[first].ids:
            self._given[first] = replace(self._given[first], owner=want.key)
        self._given.append(GivenDevices(kind, ids, None if want is None else want.key))
        if want is None or want.lacks(kind.other):
            self._pair = _Pair(None if want is None else want.key, now_s, choices)
        else:
            self._pair = None
        return want

    def _identify(
        self, kind: DeviceKind, size: int, ids: Sequence[str], view: NodeView, *, now_s: float
    ) -> WaitingContainer | None:
        failed = self._failed(kind, view)
        everyone = [_without(want, failed) for want in view.waiting_containers()]
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
        """Return the index of the given devices of the first call whose second call is awaited."""
        mine = [i for i, given in enumerate(self._given) if self._pair is not None and given.owner == self._pair.key]
        return mine[-1] if mine else None

    def _failed(self, kind: DeviceKind, view: NodeView) -> GivenDevices | None:
        """Return the devices of a first call whose second will not come: its pod ended, or the first is repeated."""
        index = self._first_call()
        given = None if index is None else self._given[index]
        if given is None or given.kind is kind:
            return given
        return None if given.owner is None or given.owner[0] in view.pods else given

    def _mistaken(self, kind: DeviceKind, wants: list[WaitingContainer], view: NodeView) -> WaitingContainer | None:
        """Find the container that fits both calls when the first was attributed to a wrong one; it then has both."""
        index = self._first_call()
        given = None if index is None else self._given[index]
        if given is not None and given.kind is kind.other:
            right = _first([want for want in wants if _asked_for(want, given)], card_of(given.ids[0]), view)
            if right is not None:
                return replace(right, grant=right.grant.with_ids(given.kind, given.ids))
        return _first(wants, "", view)

    def _guess_unknown(
        self, kind: DeviceKind, size: int, view: NodeView, *, now_s: float
    ) -> tuple[tuple[str, int], ...]:
        """Choose cards for an unknown container: those of its first call's devices, or by the node's policy."""
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
    """Choose exactly `size` ids, `must_include` among them: on the target's cards, on others only if those lack ids.

    Ids on other cards are unpromised ones first, from the card with the most of them. So a container that fits on no
    card (and is refused at its start) takes no promised device and breaks up as few cards as possible.

    On each card, ids that no pod holds come first. kubelet's `available` may contain held ones: when somebody asks
    PodResources in the middle of an admission, kubelet forgets what it has just given to that container
    (`UpdateAllocatedDevices` makes `allocatedDevices` anew of what is booked; 1.33).
    """
    chosen = list(must_include[:size])
    taken = set(chosen)
    on_card = count_by_card(chosen)
    for card, count in target.cards:
        wanted = min(count - on_card.get(card, 0), size - len(chosen))
        if wanted > 0:
            prefix = card + SEPARATOR
            ids = [text for text in available if text.startswith(prefix) and text not in taken]
            chosen += target.free_first(card, ids)[:wanted]
    if len(chosen) < size:
        chosen += _elsewhere(available, frozenset(chosen), size - len(chosen), target)
    return chosen


def _elsewhere(available: Sequence[str], taken: frozenset[str], count: int, target: AllocationTarget) -> list[str]:
    """Choose the missing ids, free ones first on each card: first on the target's cards, then where most are left."""
    by_card: dict[str, list[str]] = {}
    for text in available:
        if text not in taken:
            by_card.setdefault(card_of(text), []).append(text)
    by_card = {card: target.free_first(card, ids) for card, ids in by_card.items()}
    targets = [card for card, _ in target.cards]
    spare = target.spare(parse(available[0]).kind) if by_card else {}

    def rank(card: str) -> tuple[bool, int, int, str]:
        return (card not in targets, -min(spare.get(card, 0), len(by_card[card])), -len(by_card[card]), card)

    cards = sorted(by_card, key=rank)
    unpromised = [text for card in cards for text in by_card[card][: spare.get(card, 0)]]
    promised = [text for card in cards for text in by_card[card][spare.get(card, 0) :]]
    return (unpromised + promised)[:count]


def _without(want: WaitingContainer, failed: GivenDevices | None) -> WaitingContainer:
    """Return the want without devices that were attributed to it but went to a container that has failed."""
    if failed is None or want.key != failed.owner:
        return want
    return replace(want, grant=Grant({kind: ids for kind, ids in want.grant.ids.items() if kind is not failed.kind}))


def _asked_for(want: WaitingContainer, given: GivenDevices) -> bool:
    """Return whether these devices may have been given to this container's call."""
    return want.lacks(given.kind) and asked(want.container, given.kind) == len(given.ids)


def _holder(
    kind: DeviceKind, ids: Sequence[str], wants: list[WaitingContainer], view: NodeView
) -> WaitingContainer | None:
    """Return the want of the pod that holds the first of these ids already: an init container's devices are reused."""
    if not ids:
        return None
    for want in wants:
        if want.started and any(
            ids[0] in grant.ids.get(kind, ()) for grant in view.ledger.grants(want.pod.kubelet_uid).values()
        ):
            return want
    return None


def _first(wants: list[WaitingContainer], card: str, view: NodeView) -> WaitingContainer | None:
    """Return the likeliest container: one with a promise of this card, then one with any promise, then the earliest."""

    def rank(want: WaitingContainer) -> tuple[bool, bool]:
        promised = _promised(want, view)
        return (bool(card) and card not in promised, not promised)

    return min(wants, key=rank, default=None)


def _promised(want: WaitingContainer, view: NodeView) -> tuple[str, ...]:
    return view.promises.get(want.pod.kubelet_uid, {}).get(want.container.name, ())


def _cards_so_far(want: WaitingContainer, view: NodeView) -> tuple[str, ...]:
    """Return the cards of the container's other resource, or those of its pod's GPU init container."""
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
    """Return how many devices of a resource go on each card: 100 of core on whole cards, memory spread evenly."""
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
    """Choose cards for a container without a promise: for its whole pod while that has none yet, else for it alone."""
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
