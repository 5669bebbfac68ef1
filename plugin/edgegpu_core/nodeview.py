"""One node at one moment: its cards, its pods, what kubelet booked, what is promised; and what follows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from edgegpu_core.deviceid import Kind
from edgegpu_core.inventory import Free, Slot
from edgegpu_core.ledger import Grant, Ledger, free_after
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PodPlan, Share, footprint, held_of, plan_pod
from edgegpu_core.podview import Cards, PodView
from edgegpu_core.policy import Policy
from edgegpu_core.request import ContainerRequest, Unplaceable

planned = lru_cache(maxsize=4096)(plan_pod)
"""plan_pod with a memory: pods of one Deployment ask for the same."""


@dataclass(frozen=True, slots=True)
class Want:
    """A container whose turn it is to get devices: the first of its pod that lacks some."""

    pod: PodView
    container: ContainerRequest
    grant: Grant
    started: bool
    """Whether an earlier container of the pod has its devices already."""

    @property
    def key(self) -> tuple[str, str]:
        """Pod UID (kubelet's) and container name."""
        return (self.pod.kubelet_uid, self.container.name)

    def lacks(self, kind: Kind) -> bool:
        """Whether the container asks for this resource and has not got it."""
        return asked(self.container, kind) > 0 and kind not in self.grant.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What the plugin knows of its node; made anew for each question, never changed."""

    model: ResourceModel
    policy: Policy
    slots: tuple[Slot, ...]
    pods: Mapping[str, PodView]
    """Pods bound to this node that ask for shares, terminal ones left out, by kubelet's UID."""
    ledger: Ledger
    """kubelet's records, cut down to live pods, with what was given since the last write."""
    promises: Mapping[str, Cards]
    """By kubelet's UID: the cards that a pod is promised, after corrections."""

    _wants: list[tuple[Want, ...]] = field(default_factory=list, init=False, repr=False, compare=False)

    def wants(self) -> tuple[Want, ...]:
        """Return the containers that kubelet may ask for next, the earliest pods first; found once."""
        if not self._wants:
            self._wants.append(self._find_wants())
        return self._wants[0]

    def _find_wants(self) -> tuple[Want, ...]:
        found = []
        for pod in self.pods.values():
            grants = self.ledger.grants(pod.kubelet_uid)
            started = False
            for container in pod.containers:
                grant = grants.get(container.name) or Grant()
                if not is_complete(container, grant):
                    found.append(Want(pod, container, grant, started))
                    break
                started = True
        return tuple(sorted(found, key=lambda want: (want.pod.created, want.pod.uid)))

    def holding(self, pod: PodView) -> tuple[Share, ...]:
        """Return what a pod holds of each card: by its device ids, and by its promise for what it has not got yet."""
        uid = pod.kubelet_uid
        grants, promise = self.ledger.grants(uid), self.promises.get(uid) or {}
        plan = planned(pod.containers, self.model)
        complete = all(is_complete(c, grants.get(c.name) or Grant()) for c in pod.containers)
        if complete or isinstance(plan, Unplaceable):
            return self.ledger.held(uid, self.slots)
        if plan.one_card:
            cards = next((grant.cards() for grant in grants.values()), None)
            return footprint(plan, {c.name: cards for c in pod.containers} if cards else promise, self.slots)
        return self._partial(plan, grants, promise)

    def _partial(self, plan: PodPlan, grants: Mapping[str, Grant], promise: Cards) -> tuple[Share, ...]:
        sums: dict[str, tuple[int, int]] = {}
        for container, ask in plan.containers:
            grant = grants.get(container.name) or Grant()
            cards = grant.cards() or promise.get(container.name, ())
            for share in held_of(ask, cards, self.slots):
                memory, core = sums.get(share.card, (0, 0))
                sums[share.card] = (memory + share.memory_units, core + share.core)
        return tuple(Share(card, memory, core) for card, (memory, core) in sums.items())

    def holdings(self, *, without: str = "") -> dict[str, tuple[Share, ...]]:
        """Return what every pod holds, by kubelet's UID: live pods, and pods that kubelet has not let go of yet."""
        held = {uid: self.holding(pod) for uid, pod in self.pods.items() if uid != without}
        for uid in self.ledger.pods():
            if uid not in held and uid != without:
                held[uid] = self.ledger.held(uid, self.slots)
        return held

    def free(self, *, without: str = "") -> Free:
        """Return what is free on each card, promises counted, optionally as if one pod were not there."""
        return free_after(self.slots, self.holdings(without=without).values())


def asked(container: ContainerRequest, kind: Kind) -> int:
    """Return how many devices of a resource a container asks for."""
    return container.request.memory_units if kind is Kind.MEMORY else container.request.core


def is_complete(container: ContainerRequest, grant: Grant) -> bool:
    """Whether a container has all the devices that it asks for."""
    request, ids = container.request, grant.ids
    return (Kind.MEMORY in ids or not request.memory_units) and (Kind.CORE in ids or not request.core)


def settle(view: NodeView) -> dict[str, Cards]:
    """Return the promises after corrections: kubelet may have given one pod the card that another was promised.

    Containers of equal amounts are told apart by nobody, so the card of one can go to another. What a container got
    is then its card, and the one that is left without its promise inherits the other's, so that the sum on each card
    stays as bind reckoned it.

    Args:
        view: the promises as annotated, or as corrected before.
    """
    promises = {uid: dict(cards) for uid, cards in view.promises.items()}
    waiting = view.wants()
    for uid, pod in view.pods.items():
        for container in pod.containers:
            grant = view.ledger.grant(uid, container.name)
            actual = grant.cards()
            before = promises.get(uid, {}).get(container.name)
            if not actual or before is None or _same_cards(before, actual):
                continue
            heir = next(
                (
                    want
                    for want in waiting
                    if not want.grant.ids
                    and want.container.request == container.request
                    and _same_cards(promises.get(want.pod.kubelet_uid, {}).get(want.container.name, ()), actual)
                ),
                None,
            )
            if heir is not None:
                promises[heir.pod.kubelet_uid][heir.container.name] = before
            promises[uid][container.name] = actual
    return promises


def _same_cards(cards: tuple[str, ...], actual: tuple[str, ...]) -> bool:
    """Compare a promise, whose order is free, with cards in a fixed order."""
    return cards == actual or (len(cards) > 1 and tuple(sorted(cards)) == actual)
