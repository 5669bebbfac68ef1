"""One node at one moment: cards, pods, kubelet's records and promises; hence what each pod holds and what is free."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from edgegpu_core.choices.pod_choice import NODE_WITHOUT, AllowedChoices, GivenChoice
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.ledger import Grant, Ledger, free_after
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import NodeReport
from edgegpu_core.placement import (
    Placement,
    PlacementRefusal,
    PodPlan,
    Policy,
    Share,
    footprint,
    held_of,
    place,
    plan_pod,
    sum_by_card,
)
from edgegpu_core.podview import Cards, PodView
from edgegpu_core.request import ContainerRequest, ImpossibleRequest, RequestedAmounts

planned = lru_cache(maxsize=4096)(plan_pod)
"""plan_pod with a cache: pods of one Deployment ask for the same."""

_NONE: Mapping[str, tuple[Share, ...]] = {}


@dataclass(frozen=True, slots=True)
class WaitingContainer:
    """The first container of a pod that lacks devices: kubelet allocates for it next."""

    pod: PodView
    container: ContainerRequest
    grant: Grant
    started: bool
    """Whether an earlier container of the pod has its devices already."""
    runs: bool = False
    """Whether the container has started by the API: kubelet has lost its record of the devices that it has."""

    @property
    def key(self) -> tuple[str, str]:
        """Pod UID (kubelet's) and container name."""
        return (self.pod.kubelet_uid, self.container.name)

    def lacks(self, kind: DeviceKind) -> bool:
        """Return whether the container asks for this resource and has not got it."""
        return asked(self.container, kind) > 0 and kind not in self.grant.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What the plugin knows of its node, built anew for each call and never changed."""

    model: ResourceModel
    policy: Policy
    slots: tuple[CardCapacity, ...]
    pods: Mapping[str, PodView]
    """Pods bound to this node that ask for shares, terminal ones left out, by kubelet's UID."""
    ledger: Ledger
    """kubelet's records of live pods, with the devices given since kubelet last wrote its checkpoint."""
    promises: Mapping[str, Cards]
    """The cards that each pod is promised, after corrections, by kubelet's UID."""
    allowed: AllowedChoices = NODE_WITHOUT
    """What pods may choose on this node."""
    given: Mapping[tuple[str, str], GivenChoice] = field(default_factory=dict)
    """What kubelet's stored answers give each container, by kubelet's UID of its pod and by name."""

    _waiting: list[tuple[WaitingContainer, ...]] = field(default_factory=list, init=False, repr=False, compare=False)

    def waiting_containers(self) -> tuple[WaitingContainer, ...]:
        """Return the containers that kubelet may ask for next, the earliest pods first; computed once.

        Those that run already, of which kubelet has lost its record, come last: it asks for them at their next start.
        """
        if not self._waiting:
            self._waiting.append(self._find_waiting())
        return self._waiting[0]

    def _find_waiting(self) -> tuple[WaitingContainer, ...]:
        found = []
        for pod in self.pods.values():
            grants = self.ledger.grants(pod.kubelet_uid)
            started = False
            for container in pod.containers:
                grant = grants.get(container.name) or Grant()
                if not is_complete(container, grant):
                    runs = pod.has_started(container.name)
                    found.append(WaitingContainer(pod, container, grant, started, runs))
                    break
                started = True
        return tuple(sorted(found, key=lambda want: (want.runs, want.pod.created, want.pod.uid)))

    def holding(self, pod: PodView) -> tuple[Share, ...]:
        """Return what a pod holds of each card: by its device ids, and by its promise for devices that it lacks."""
        uid = pod.kubelet_uid
        grants, promise = self.ledger.grants(uid), self.promises.get(uid) or {}
        plan = planned(pod.containers, self.model)
        complete = all(is_complete(c, grants.get(c.name) or Grant()) for c in pod.containers)
        if complete or isinstance(plan, ImpossibleRequest):
            return self.ledger.held(uid, self.slots)
        if plan.one_card:
            cards = next((cards_so_far(grant, promise.get(name, ())) for name, grant in grants.items()), None)
            return footprint(plan, {c.name: cards for c in pod.containers} if cards else promise, self.slots)
        return self._partial(plan, grants, promise)

    def _partial(self, plan: PodPlan, grants: Mapping[str, Grant], promise: Cards) -> tuple[Share, ...]:
        shares: list[Share] = []
        for container, ask in plan.containers:
            grant = grants.get(container.name) or Grant()
            shares += held_of(ask, cards_so_far(grant, promise.get(container.name, ())), self.slots)
        return sum_by_card(shares)

    def holdings(self, *, without: str = "") -> dict[str, tuple[Share, ...]]:
        """Return what every pod holds, by kubelet's UID: live pods, and others whose devices kubelet still books."""
        held = {uid: self.holding(pod) for uid, pod in self.pods.items() if uid != without}
        for uid in self.ledger.pods():
            if uid not in held and uid != without:
                held[uid] = self.ledger.held(uid, self.slots)
        return held

    def free(self, *, without: str = "") -> FreeAmounts:
        """Return what is free on each card, with promises counted as held, optionally without one pod."""
        return free_after(self.slots, self.holdings(without=without).values())

    def place_anew(self, pod: PodView) -> Placement | PlacementRefusal:
        """Place a pod as if it held nothing, or return why it does not fit or may not be here."""
        if refusal := self.allowed.refusal(pod.choice):
            return PlacementRefusal(refusal, never=True)
        free = self.free(without=pod.kubelet_uid)
        return place_pod(pod.containers, free, pod.policy or self.policy, self.model)


def place_pod(
    containers: tuple[ContainerRequest, ...], free: FreeAmounts, policy: Policy, model: ResourceModel
) -> Placement | PlacementRefusal:
    """Place a pod on a node by its containers, or return why it does not fit or can never be placed."""
    plan = planned(containers, model)
    return (
        PlacementRefusal(plan.reason, never=True) if isinstance(plan, ImpossibleRequest) else place(plan, free, policy)
    )


def shares_held(
    report: NodeReport,
    pods: Iterable[PodView],
    model: ResourceModel,
    in_flight: Mapping[str, tuple[Share, ...]] = _NONE,
) -> dict[str, tuple[Share, ...]]:
    """Return what each pod on a node holds, by API UID; empty for one that fits on no card: its plugin refuses it.

    What a pod holds comes from the first of these that has it: the plugin's report, which knows device ids; the pod's
    own annotation; our binding `in_flight`; and for a pod that another scheduler bound, a guess by first fit. A pod
    that has ended holds nothing unless the report says that kubelet still books its devices.
    """
    held = dict(report.held)
    unknown: list[PodView] = []
    for pod in pods:
        if pod.is_terminal or pod.uid in held:
            continue
        plan = planned(pod.containers, model)
        if isinstance(plan, PodPlan) and pod.cards is not None:
            held[pod.uid] = footprint(plan, pod.cards, report.slots)
        elif pod.uid in in_flight:
            held[pod.uid] = in_flight[pod.uid]
        else:
            unknown.append(pod)
    for pod in sorted(unknown, key=lambda pod: (pod.created, pod.uid)):
        placed = place_pod(pod.containers, free_after(report.slots, held.values()), Policy.FIRST_FIT, model)
        held[pod.uid] = placed.held if isinstance(placed, Placement) else ()
    return held


def asked(container: ContainerRequest, kind: DeviceKind) -> int:
    """Return how many devices of a resource a container asks for."""
    return container.request.memory_units if kind is DeviceKind.MEMORY else container.request.core


def is_complete(container: ContainerRequest, grant: Grant) -> bool:
    """Return whether a container has all the devices that it asks for."""
    request, ids = container.request, grant.ids
    return (DeviceKind.MEMORY in ids or not request.memory_units) and (DeviceKind.CORE in ids or not request.core)


def corrected_promises(view: NodeView, *, gone: Container[str] = ()) -> dict[str, Cards]:
    """Return the promises after corrections: kubelet may have given one pod the card that another was promised.

    kubelet's calls do not distinguish containers of equal amounts, so one can get the card of another. It keeps what it
    got, and the other inherits the vacant promise, so that the sum on each card stays as bind computed it. Where a pod
    without a promise got the card, the promised pod moves to another card if one has room.

    Args:
        view: the node; its promises are those of the annotations, or corrected ones.
        gone: kubelet's UIDs of pods that have surely ended. Devices that they still hold go before promises. Devices of
            other unknown holders move no promise: such a pod may have got the card of a twin that inherits its own.
    """
    promises = {uid: dict(cards) for uid, cards in view.promises.items()}
    left: dict[RequestedAmounts, Counter[tuple[str, ...]]] = {}
    for uid, pod in view.pods.items():
        for container in pod.containers:
            before = promises.get(uid, {}).get(container.name)
            actual = cards_so_far(view.ledger.grant(uid, container.name), before or ())
            if before is not None and not _same_cards(before, actual):
                promises[uid][container.name] = actual
                balance = left.setdefault(container.request, Counter())
                balance[tuple(sorted(before))] += 1
                balance[actual] -= 1
    if left:
        _inherit_promises(view, promises, left)
    out_of_order = not all(slot.healthy for slot in view.slots)
    claimed = any(uid not in promises and (uid in view.pods or uid in gone) for uid in view.ledger.pods())
    if left or out_of_order or claimed:
        _reassign_promises(view, promises)
    return promises


def _inherit_promises(
    view: NodeView, promises: dict[str, Cards], left: dict[RequestedAmounts, Counter[tuple[str, ...]]]
) -> None:
    """Give containers whose promised cards went to equal containers the cards that these left, also in a ring."""
    for want in view.waiting_containers():
        uid, name = want.key
        balance = left.get(want.container.request)
        promised = tuple(sorted(promises.get(uid, {}).get(name, ())))
        if balance is None or want.grant.ids or balance[promised] >= 0:
            continue
        vacant = next((cards for cards, count in balance.items() if count > 0), None)
        if vacant is not None:
            promises[uid][name] = vacant
            balance[promised] += 1
            balance[vacant] -= 1


def _reassign_promises(view: NodeView, promises: dict[str, Cards]) -> None:
    """Promise other cards, where there are some, to pods without devices whose promise no longer fits.

    A promise no longer fits when a pod without a promise got the card, or when the card went out of order before
    kubelet asked. After a restart it may also be that one of two swapped pods is gone: the heir of a vacant promise,
    or the pod that left it while kubelet still books its devices.
    """
    for want in view.waiting_containers():
        uid = want.pod.kubelet_uid
        plan = planned(want.pod.containers, view.model)
        if want.started or want.grant.ids or uid not in promises or isinstance(plan, ImpossibleRequest):
            continue
        free = replace(view, promises=promises).free(without=uid)
        if not has_room(free, footprint(plan, promises[uid], view.slots)):
            placed = place(plan, free, want.pod.policy or view.policy)
            if isinstance(placed, Placement):
                promises[uid] = dict(placed.cards)


def has_room(free: FreeAmounts, shares: Iterable[Share]) -> bool:
    """Return whether each share is free on its card."""
    for share in shares:
        position = free.position(share.card)
        if position is None or free.memory[position] < share.memory_units or free.core[position] < share.core:
            return False
    return True


def cards_so_far(grant: Grant, promised: tuple[str, ...]) -> tuple[str, ...]:
    """Return a container's cards: the promised ones while its devices lie on these, else those of its devices."""
    actual = grant.cards()
    return promised if set(actual) <= set(promised) else actual


def _same_cards(cards: tuple[str, ...], actual: tuple[str, ...]) -> bool:
    """Return whether a promise, in any order, names these cards, which are in a fixed order."""
    return cards == actual or (len(cards) > 1 and tuple(sorted(cards)) == actual)
