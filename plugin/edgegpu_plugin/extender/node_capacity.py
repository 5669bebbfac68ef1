"""What is free on a node for a new pod, by the plugin's report, the pods bound there and the bindings in flight."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from edgegpu_core.inventory import FreeAmounts
from edgegpu_core.ledger import free_after
from edgegpu_core.model import CORE_PER_CARD, ResourceModel, short_name
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, read_report
from edgegpu_core.nodeview import place_pod, shares_held
from edgegpu_core.placement import Placement, Policy, Share
from edgegpu_core.podview import PodView, allocatable_amounts
from edgegpu_core.preemption import CardHolder, free_without
from edgegpu_core.request import RequestedAmounts, total
from edgegpu_plugin.extender.assumed import Assumption

TOP_LEVEL = 10

_NO_REPORT = NodeReport(
    boot="", generation=0, time="", policy=Policy.FIRST_FIT, unit_mib=0, core_required=True, slots=(), held={}
)
"""What stands for the report of a node that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNode:
    """One node: what its plugin reports, and what kubelet has as allocatable."""

    uid: str
    name: str
    report: NodeReport | None
    memory_units: int
    core: int

    def problem(self, model: ResourceModel) -> str:
        """Return why no pod can be placed on the node at present; empty when one can."""
        if self.report is None:
            return "has no edgegpu plugin (no card list published)"
        units = self.report.units()
        if units != self.memory_units:
            # Between a start of kubelet or plugin and kubelet's next status the two differ, and either may be wrong.
            return (
                f"inventory not current: its plugin reports {units} {short_name(model.memory_resource)}, "
                f"kubelet offers {self.memory_units}"
            )
        return ""

    def model(self, model: ResourceModel) -> ResourceModel:
        """Return the resource model of this node's plugin; the names are the same in the whole cluster."""
        if self.report is None:
            return model
        return _model(model, self.report.unit_mib, core_required=self.report.core_required)


@lru_cache(maxsize=64)
def _model(base: ResourceModel, unit_mib: int, *, core_required: bool) -> ResourceModel:
    """Return the same model object for equal nodes, so that models can be compared by identity."""
    return replace(base, unit_mib=unit_mib, core_required=core_required)


def known_node(node: Mapping[str, Any], model: ResourceModel) -> KnownNode:
    """Read a node object of the API."""
    metadata = node["metadata"]
    amounts = allocatable_amounts(node, model)
    return KnownNode(
        uid=str(metadata.get("uid", "")),
        name=str(metadata["name"]),
        report=read_report((metadata.get("annotations") or {}).get(REPORT_ANNOTATION)),
        memory_units=amounts.memory_units,
        core=amounts.core,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """What is free on one node; never changed, but made anew after each change there."""

    node: KnownNode
    problem: str
    model: ResourceModel
    free: FreeAmounts
    lowest_priority: int | None
    """The lowest priority among the pods that hold something and could be preempted."""
    level: int
    """How full the node is: 0 when nothing is held, 10 when nothing is left, 1 to 9 between."""
    empty: tuple[int, ...]
    """The units of each empty card, the largest first."""
    holders: tuple[CardHolder, ...]
    """All holders of shares of the node's cards."""
    in_flight: frozenset[str]
    """The UIDs of holders whose binding to the node is not seen yet, and may come to nothing."""
    scheduler_free: RequestedAmounts
    """What the scheduler counts as free on the node: its sums less what the pods bound there ask for."""
    kept_for: tuple[str, ...] = ()
    """The pods for which room on the node is kept that otherwise looks free."""

    def sums_have_room(self, pod: PodView) -> bool:
        """Return whether the node's sums have room for a pod, so that the scheduler sees nothing to evict for."""
        asked = total(pod.containers)
        return asked.memory_units <= self.scheduler_free.memory_units and asked.core <= self.scheduler_free.core

    def pods_beside(self) -> tuple[str, ...]:
        """Return the pods on cards that the node does not offer (excluded or gone): the scheduler's sums count them.

        The report has them as holders of nothing, since it names shares by the cards that are offered.
        """
        reported = {} if self.node.report is None else self.node.report.held
        return tuple(
            holder.pod.full_name
            for holder in self.holders
            if holder.pod is not None and not holder.shares and holder.uid in reported
        )


def _level(free: FreeAmounts) -> int:
    cards = zip(free.slots, free.memory, free.core, strict=True)
    used = [max(1 - memory / (s.units or 1), 1 - core / CORE_PER_CARD) for s, memory, core in cards if s.healthy]
    if not used or min(used) >= 1:
        return TOP_LEVEL
    return min(math.ceil(sum(used) / len(used) * (TOP_LEVEL - 1)), TOP_LEVEL - 1)


def capacity_of(
    node: KnownNode, pods: Iterable[PodView], assumed: Iterable[Assumption], base: ResourceModel
) -> NodeCapacity:
    """Compute what is free on a node.

    Args:
        node: the node.
        pods: the pods bound to it.
        assumed: the bindings in flight to it; one that is among `pods` already counts once.
        base: the resource names.
    """
    model = node.model(base)
    report = node.report or _NO_REPORT
    on_way = {assumption.pod.uid: assumption for assumption in assumed}
    seen = {pod.uid: pod for pod in pods}
    present = {uid: assumption.pod for uid, assumption in on_way.items()} | seen
    held = shares_held(report, present.values(), model, {uid: one.held for uid, one in on_way.items()})
    free = free_after(report.slots, held.values())
    return NodeCapacity(
        node=node,
        problem=node.problem(base),
        model=model,
        free=free,
        lowest_priority=min((pod.priority for pod in present.values() if not pod.is_terminal), default=None),
        level=_level(free),
        empty=_empty(free),
        holders=tuple(CardHolder(uid, shares, _evictable(present.get(uid))) for uid, shares in held.items()),
        in_flight=frozenset(on_way.keys() - seen.keys()),
        scheduler_free=_scheduler_free(node, present.values()),
    )


@dataclass(frozen=True, slots=True)
class Nomination:
    """Room on one node that preemption made for a pod that is not bound yet."""

    pod: PodView
    victims: frozenset[str]
    """The UIDs of the pods that are to go for it, as far as known."""

    def precedes(self, pod: PodView, own: "Nomination | None") -> bool:
        """Return whether the nomination counts against a pod, which may have its `own` claim on that node."""
        if self.pod.uid == pod.uid or self.pod.priority < pod.priority:
            return False
        return self.pod.priority > pod.priority or own is None or _turn(self.pod) < _turn(pod)


def claimed(room: NodeCapacity, claims: Iterable[Nomination]) -> tuple[Share, ...]:
    """Return what is kept on a node for the pods nominated to it, the highest priority first.

    For a pod that fits on no card now, the card is kept on which it fits once its victims are gone.
    """
    kept: list[Share] = []
    ordered = sorted(claims, key=lambda claim: _turn(claim.pod))
    leaving = {holder.uid for holder in room.holders if holder.pod is not None and holder.pod.deleting}
    for claim in ordered:
        policy = claim.pod.policy or (room.node.report or _NO_REPORT).policy
        for gone in (frozenset[str](), leaving | claim.victims):
            free = take_shares(free_without(room.free.slots, room.holders, frozenset(gone)), kept)
            placed = place_pod(claim.pod.containers, free, policy, room.model)
            if isinstance(placed, Placement):
                kept += placed.held
                break
    return tuple(kept)


def without_claimed(room: NodeCapacity, claims: Sequence[Nomination]) -> NodeCapacity:
    """Return a node's capacity less what is kept there for nominated pods."""
    kept = claimed(room, claims)
    free = take_shares(room.free.copy(), kept)
    # These holders have no pod, so that no other pod may preempt them.
    holders = (
        *room.holders,
        *(CardHolder(f"claim-{number}", (share,), None, is_kept=True) for number, share in enumerate(kept)),
    )
    names = tuple(claim.pod.full_name for claim in claims)
    return replace(room, free=free, level=_level(free), empty=_empty(free), holders=holders, kept_for=names)


def take_shares(free: FreeAmounts, shares: Iterable[Share]) -> FreeAmounts:
    """Book shares in `free`, and return it."""
    for share in shares:
        position = free.position(share.card)
        if position is not None:
            free.take(position, share.memory_units, share.core)
    return free


def _turn(pod: PodView) -> tuple[int, str, str]:
    return -pod.priority, pod.created, pod.uid


def _scheduler_free(node: KnownNode, pods: Iterable[PodView]) -> RequestedAmounts:
    asked = [total(pod.containers) for pod in pods if not pod.is_terminal]
    return RequestedAmounts(
        node.memory_units - sum(one.memory_units for one in asked), node.core - sum(one.core for one in asked)
    )


def _evictable(pod: PodView | None) -> PodView | None:
    """Return a pod that can be evicted, or None: what an ended pod holds is freed only when kubelet releases it."""
    return None if pod is None or pod.is_terminal else pod


def _empty(free: FreeAmounts) -> tuple[int, ...]:
    units = (slot.units for position, slot in enumerate(free.slots) if free.is_empty(position))
    return tuple(sorted(units, reverse=True))
