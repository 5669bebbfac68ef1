"""What the cluster's nodes have and what is held of it, and the trial that places and ends pods on a copy of that."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgegpu_core.choices.pod_choice import NO_CHOICE, AllowedChoices, PodChoice, choice_refusal
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.ledger import free_after
from edgegpu_core.limits.nodes import Constraints, Taint
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import place_pod
from edgegpu_core.placement import Placement, PlacementRefusal, Policy, Share
from edgegpu_core.request import NOTHING, ContainerRequest, RequestedAmounts, total
from edgegpu_core.sentences import sentence

DEFAULT_MODEL = ResourceModel()

Held = Mapping[str, tuple[Share, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """One node: its cards, what each pod holds of them (by API UID), and what decides which pods may go there."""

    name: str
    slots: tuple[CardCapacity, ...] = ()
    held: Held = field(default_factory=dict)
    model: ResourceModel = DEFAULT_MODEL
    policy: Policy = Policy.FIRST_FIT
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    problem: str = ""
    """Why no pod can be placed on the node at present; empty when one can."""
    stale: bool = False
    """Whether `problem` is an inventory that is not current: it passes within moments."""
    allowed: AllowedChoices | None = None
    """What pods may choose there; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a namespace's quotas leave; None where they set no limit. The app's own pods are counted as used."""

    units: int | None = None
    core: int | None = None
    pods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPod:
    """A pod under the changed template. `problem`: why no node can ever take it."""

    containers: tuple[ContainerRequest, ...] = ()
    policy: Policy | None = None
    choice: PodChoice = NO_CHOICE
    problem: str = ""

    @property
    def need(self) -> RequestedAmounts:
        """What the pod counts against quota."""
        return total(self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod:
    """A pod that the app has now. A terminating one holds its units until it is gone, and has a replacement already."""

    uid: str
    node: str = ""
    terminating: bool = False
    ordinal: int = 0
    need: RequestedAmounts = NOTHING


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """Why a pod cannot go to a node; no node for quota and for a pod that no node can take."""

    node: str
    why: str
    stale: bool = False
    """Whether the reason is an inventory that is not current."""
    tells_free: bool = False
    """Whether the reason tells what is free, on the cards or of the quota."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """Where a trial has placed a pod: the node, and the cards there."""

    room: NodeRoom
    placement: Placement


class TrialPlacement:
    """A copy of the nodes on which pods are placed and ended; what it was made from stays unchanged."""

    def __init__(self, rooms: tuple[NodeRoom, ...], constraints: Constraints, quota: Quota) -> None:
        """Begin with what is held now; nodes that the constraints exclude take no new pod."""
        self._rooms = rooms
        self._excluded = tuple(constraints.refusal(room.name, room.labels, room.taints) for room in rooms)
        self._held = [dict(room.held) for room in rooms]
        self._free = [free_after(room.slots, held.values()) for room, held in zip(rooms, self._held, strict=True)]
        self._left = [quota.units, quota.core, quota.pods]
        self._count = 0

    def copy(self) -> "TrialPlacement":
        """Return an independent copy of the trial."""
        twin = object.__new__(TrialPlacement)
        twin._rooms, twin._excluded, twin._count = self._rooms, self._excluded, self._count
        twin._held = [dict(held) for held in self._held]
        twin._free = list(self._free)  # never changed in place
        twin._left = list(self._left)
        return twin

    def state_key(self) -> tuple[object, ...]:
        """Return a key that is equal for trials in which the same is free."""
        return (*((tuple(free.memory), tuple(free.core)) for free in self._free), *self._left)

    def open_nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that the constraints allow, also of those with a problem."""
        return tuple(room.name for room, why in zip(self._rooms, self._excluded, strict=True) if not why)

    def place(self, pod: NewPod, *, only: str = "") -> bool:
        """Place a pod on the first node with room, or on the node `only`; False when it has to wait."""
        return self.placed(pod, only=only) is not None

    def placed(self, pod: NewPod, *, only: str = "") -> PlacedPod | None:
        """Place a pod as `place` does, and return where it is; None when it has to wait."""
        if pod.problem or self._over_quota(pod.need):
            return None
        for at, room in enumerate(self._rooms):
            if self._excluded[at] or room.problem or (only and room.name != only):
                continue
            placed = self._on_node(pod, at)
            if isinstance(placed, Placement):
                self._count += 1
                self._held[at][f"new {self._count}"] = placed.held
                self._free[at] = free_after(room.slots, self._held[at].values())
                self._spend(pod.need, 1)
                return PlacedPod(room, placed)
        return None

    def _on_node(self, pod: NewPod, at: int) -> Placement | PlacementRefusal:
        room = self._rooms[at]
        if refusal := choice_refusal(pod.choice, room.allowed):
            return PlacementRefusal(refusal, never=True)
        return place_pod(pod.containers, self._free[at], pod.policy or room.policy, room.model)

    def end(self, pod: OwnPod) -> None:
        """End a pod: free what it held on its node, and its quota."""
        for at, held in enumerate(self._held):
            if held.pop(pod.uid, None) is not None:
                self._free[at] = free_after(self._rooms[at].slots, held.values())
        self._spend(pod.need, -1)

    def _over_quota(self, need: RequestedAmounts) -> bool:
        wanted = (need.memory_units, need.core, 1)
        return any(left is not None and want > left for left, want in zip(self._left, wanted, strict=True))

    def _spend(self, need: RequestedAmounts, sign: int) -> None:
        wanted = (need.memory_units, need.core, 1)
        self._left = [
            left if left is None else left - sign * want for left, want in zip(self._left, wanted, strict=True)
        ]

    def holding(self, pod: OwnPod) -> tuple[object, ...]:
        """Return a key that is equal for pods whose end frees the same: the node, the shares and the quota."""
        for at, held in enumerate(self._held):
            if pod.uid in held:
                return (at, held[pod.uid], pod.need)
        return (pod.need,)

    def free_of(self) -> tuple[tuple[NodeRoom, FreeAmounts], ...]:
        """Return what is free on each node that the constraints allow."""
        return tuple((room, self._free[at]) for at, room in enumerate(self._rooms) if not self._excluded[at])

    def refusals(self, pod: NewPod, *, only: str = "") -> tuple[PodRefusal, ...]:
        """Return why the pod has no room, for each node or for the one `only`."""
        if pod.problem:
            return (PodRefusal("", pod.problem),)
        if self._over_quota(pod.need):
            return (PodRefusal("", self._quota_words(pod.need), tells_free=True),)
        found = []
        for at, room in enumerate(self._rooms):
            if only and room.name != only:
                continue
            why, tells_free = self._excluded[at] or room.problem, False
            if not why and isinstance(placed := self._on_node(pod, at), PlacementRefusal):
                why, tells_free = placed.reason, placed.tells_free
            stale = room.stale and not self._excluded[at]
            found.append(PodRefusal(room.name, why, stale=stale, tells_free=tells_free))
        return tuple(found)

    def _quota_words(self, need: RequestedAmounts) -> str:
        units, core, pods = self._left
        if pods is not None and pods < 1:
            return sentence("the namespace's quota lets no further pod in")
        return sentence(
            "the namespace's quota leaves %(units)s memory units and %(core)s core, "
            "a pod counts %(units_of_pod)d and %(core_of_pod)d",
            units=_left(units),
            core=_left(core),
            units_of_pod=need.memory_units,
            core_of_pod=need.core,
        )


def _left(value: int | None) -> str:
    return sentence("any") if value is None else str(max(0, value))
