"""How the core is asked, call by call: what nodestate, allocator and reconciler do, without threads and files."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core.admission import admission_verdict
from edgegpu_core.allocation_matching import AllocationMatcher, AllocationTarget, pick
from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.choices.pod_choice import AllowedChoices, GivenChoice
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.ledger import CheckpointEntry, Ledger
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import NodeView, corrected_promises
from edgegpu_core.placement import Placement, PodPlan, Policy, Share, place, plan_pod
from edgegpu_core.podview import Cards, PodView

ALLOWED = AllowedChoices(PluginIsolation.LIMITER, (PluginIsolation.NONE,), capabilities=(Capability.GRAPHICS,))
"""The node holds containers, and lets its pods choose not to be held."""


@dataclass(slots=True)
class PluginModel:
    """One node's plugin; kubelet's checkpoint and pod list are looked at, everything else is told."""

    model: ResourceModel
    slots: tuple[CardCapacity, ...]
    checkpoint: Callable[[], tuple[int, tuple[CheckpointEntry, ...]]]
    kubelet_pods: Callable[[], Iterable[PodView]]
    given: Callable[[], Mapping[tuple[str, str], GivenChoice]]
    matcher: AllocationMatcher = field(default_factory=AllocationMatcher)
    pods: dict[str, PodView] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    now_s: float = 0.0
    _seen: int = -1
    _gone: set[str] = field(default_factory=set)
    _booked: Ledger = field(default_factory=Ledger)
    _overrides: dict[str, Cards] = field(default_factory=dict)

    def view(self) -> NodeView:
        """Return the node as it stands, promises settled."""
        writes, entries = self.checkpoint()
        if writes != self._seen:
            self._seen, self._booked = writes, Ledger.of_entries(entries, self.model)
            self.matcher.forget()
            self._settled()  # kubelet's write is looked at first, the reconciler asks who is unknown afterwards
            if not set(self._booked.pods()) <= self.pods.keys() | self._gone:
                self._ask_kubelet()
        return self._settled()

    def _settled(self) -> NodeView:
        live = {uid: pod for uid, pod in self.pods.items() if not pod.is_terminal}
        ledger = self._booked.only(uid for uid in self._booked.pods() if uid in live or uid not in self.released)
        self.matcher.add_to(ledger, live)
        annotated = {uid: pod.cards for uid, pod in live.items() if pod.cards is not None}
        promises = annotated | {uid: cards for uid, cards in self._overrides.items() if uid in live}
        gone = self._gone | (self.pods.keys() - live.keys())
        promises = corrected_promises(self._view(live, ledger, promises), gone=gone)
        self._overrides = {
            uid: cards for uid, cards in promises.items() if uid in self._overrides or cards != annotated.get(uid)
        }
        return self._view(live, ledger, promises)

    def _view(self, live: dict[str, PodView], ledger: Ledger, promises: dict[str, Cards]) -> NodeView:
        return NodeView(
            model=self.model,
            policy=Policy.FIRST_FIT,
            slots=self.slots,
            pods=live,
            ledger=ledger,
            promises=promises,
            allowed=ALLOWED,
            given=self.given(),
        )

    def preferred(self, kind: DeviceKind, available: list[str], must_include: list[str], size: int) -> list[str]:
        """Answer GetPreferredAllocation; kubelet's own pod list is asked before any guess: the watch may be late."""
        self.now_s += 0.001
        target = self._target(kind, size, must_include)
        if target.want is None or target.guessed:
            self._ask_kubelet()
            target = self._target(kind, size, must_include)
        assert target.want is not None, "kubelet asks for a pod that is in its own list"
        return pick(available, must_include, size, target)

    def _ask_kubelet(self) -> None:
        """Where the watch is late, another of equal amounts may have been taken for a pod that it has not shown yet."""
        self.pods |= {pod.kubelet_uid: pod for pod in self.kubelet_pods() if pod.kubelet_uid not in self._gone}

    def _target(self, kind: DeviceKind, size: int, must_include: list[str]) -> AllocationTarget:
        return self.matcher.prefer(kind, size, must_include, self.view(), now_s=self.now_s)

    def allocate(self, kind: DeviceKind, ids: tuple[str, ...]) -> GivenChoice:
        """Answer Allocate with what shall hold the container."""
        self.now_s += 0.001
        view = self.view()
        choices = self.matcher.choices(kind, len(ids), view, now_s=self.now_s)
        self.matcher.allocated(kind, ids, view, now_s=self.now_s)
        return ALLOWED.given_to(choices)

    def put(self, pod: PodView) -> None:
        """Hear of a new or changed pod."""
        self.pods[pod.kubelet_uid] = pod

    def drop(self, uid: str) -> None:
        """Hear that a pod is gone from the API."""
        self.pods.pop(uid, None)
        self._gone.add(uid)
        self._overrides.pop(uid, None)

    def adopt(self) -> None:
        """Promise pods that nobody placed, and that are in their right, the cards which they have."""
        view = self.view()
        unwritten = self.matcher.unwritten()
        for uid, pod in view.pods.items():
            for container in () if uid in unwritten else pod.containers:
                grant = view.ledger.grant(uid, container.name)
                if container.name not in view.promises.get(uid, {}) and grant.ids:
                    verdict = admission_verdict(pod, container, view)
                    if verdict.admitted:
                        promise = dict(self._overrides.get(uid) or pod.cards or {})
                        self._overrides[uid] = promise | {container.name: verdict.cards}

    def restart(self, pods: Iterable[PodView]) -> None:
        """Begin anew with what the API and kubelet's checkpoint say."""
        self.matcher = AllocationMatcher()
        self._overrides, self._seen = {}, -1
        self.pods = {pod.kubelet_uid: pod for pod in pods}


def summed(held: Iterable[tuple[Share, ...]]) -> Counter[tuple[str, str]]:
    """Add up what is held of each card."""
    sums: Counter[tuple[str, str]] = Counter()
    for share in (share for shares in held for share in shares):
        sums[share.card, "memory"] += share.memory_units
        sums[share.card, "core"] += share.core
    return sums


def room(view: NodeView, bound: Iterable[PodView]) -> FreeAmounts:
    """Return what the extender finds free: held, promised, and a guess for pods that somebody else bound."""
    known = view.holdings()
    others = [pod for pod in bound if not known.get(pod.kubelet_uid)]
    promised = NodeView(
        model=view.model,
        policy=view.policy,
        slots=view.slots,
        pods={pod.kubelet_uid: pod for pod in others},
        ledger=Ledger(),
        promises={pod.kubelet_uid: pod.cards for pod in others if pod.cards is not None},
    )
    free = view.free()
    for shares in promised.holdings().values():
        _take(free, shares)
    for pod in (pod for pod in others if pod.cards is None):
        plan = plan_pod(pod.containers, view.model)
        placed = place(plan, free, Policy.FIRST_FIT) if isinstance(plan, PodPlan) else None
        if isinstance(placed, Placement):
            _take(free, placed.held)
    return free


def _take(free: FreeAmounts, shares: Iterable[Share]) -> None:
    for share in shares:
        position = free.position(share.card)
        assert position is not None
        free.take(position, share.memory_units, share.core)
