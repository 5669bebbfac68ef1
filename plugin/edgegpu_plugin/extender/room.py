"""What is free on a node for a new pod: the plugin's report, the pods bound there and the bindings on their way."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from edgegpu_core.inventory import Free
from edgegpu_core.ledger import free_after
from edgegpu_core.model import CORE_PER_CARD, ResourceModel, short_name
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, read_report
from edgegpu_core.nodeview import planned
from edgegpu_core.placement import Placement, PodPlan, Share, footprint, place
from edgegpu_core.podview import PodView, gpu_containers
from edgegpu_core.policy import Policy
from edgegpu_plugin.extender.assumed import Assumption

TOP_LEVEL = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNode:
    """One node: what its plugin reports, and what kubelet says can be allocated there."""

    uid: str
    name: str
    report: NodeReport | None
    memory_units: int
    core: int

    def problem(self, model: ResourceModel) -> str:
        """Say why nothing can be placed here at present; empty when something can."""
        if self.report is None:
            return "has no edgegpu plugin (no card list published)"
        units = self.report.units()
        if units != self.memory_units:
            # Between a start of kubelet or plugin and kubelet's next status the two differ, and neither is sure.
            return (
                f"inventory not current: its plugin reports {units} {short_name(model.memory_resource)}, "
                f"kubelet offers {self.memory_units}"
            )
        return ""

    def model(self, model: ResourceModel) -> ResourceModel:
        """Return the resource model as this node's plugin has it; names are the same in the whole cluster."""
        if self.report is None:
            return model
        return _model(model, self.report.unit_mib, core_required=self.report.core_required)


@lru_cache(maxsize=64)
def _model(base: ResourceModel, unit_mib: int, *, core_required: bool) -> ResourceModel:
    """Return one and the same object for equal nodes, so that they can be told by identity."""
    return replace(base, unit_mib=unit_mib, core_required=core_required)


def known_node(node: Mapping[str, Any], model: ResourceModel) -> KnownNode:
    """Read a node object of the API."""
    metadata, status = node["metadata"], node.get("status") or {}
    # Quantities are written in the same way in limits and in allocatable ("1k" for 1000), so one reader serves both.
    offered = {"containers": [{"name": "", "resources": {"limits": status.get("allocatable") or {}}}]}
    amounts = next((found.request for found in gpu_containers(offered, model)), None)
    return KnownNode(
        uid=str(metadata.get("uid", "")),
        name=str(metadata["name"]),
        report=read_report((metadata.get("annotations") or {}).get(REPORT_ANNOTATION)),
        memory_units=amounts.memory_units if amounts else 0,
        core=amounts.core if amounts else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free on one node; never changed, made anew when something happens there."""

    node: KnownNode
    problem: str
    model: ResourceModel
    free: Free
    shape: tuple[tuple[int, bool], ...]
    """The sizes of the cards: what fits on one empty node fits on all of the same shape."""
    lowest_priority: int | None
    """The lowest priority among the pods that hold something and could be preempted."""
    level: int
    """How full the node is: 0 = nothing held, 10 = nothing left, and 1 to 9 between."""
    empty: tuple[int, ...]
    """The units of the cards of which nobody holds anything, the largest first."""


def _level(free: Free) -> int:
    cards = zip(free.slots, free.memory, free.core, strict=True)
    used = [max(1 - memory / (s.units or 1), 1 - core / CORE_PER_CARD) for s, memory, core in cards if s.healthy]
    if not used or min(used) >= 1:
        return TOP_LEVEL
    return min(math.ceil(sum(used) / len(used) * (TOP_LEVEL - 1)), TOP_LEVEL - 1)


def room_of(node: KnownNode, pods: Iterable[PodView], assumed: Iterable[Assumption], base: ResourceModel) -> Room:
    """Work out what is free on a node.

    What a pod holds is believed in this order: the plugin's report, which knows device ids; the pod's own
    annotation; our assumption; and for a pod that somebody else bound, a guess by first fit. A pod that has ended
    is free unless the report says that kubelet has not let go.

    Args:
        node: the node.
        pods: those bound to it.
        assumed: those on their way to it; one that is among `pods` already counts once.
        base: resource names.
    """
    model = node.model(base)
    report = node.report
    slots = () if report is None else report.slots
    held: dict[str, tuple[Share, ...]] = {} if report is None else dict(report.held)
    unknown: list[PodView] = []
    lowest: int | None = None
    on_way = {assumption.pod.uid: assumption for assumption in assumed}
    bound = {pod.uid: pod for pod in pods}
    for pod in ({uid: assumption.pod for uid, assumption in on_way.items()} | bound).values():
        if pod.is_terminal:
            continue
        lowest = pod.priority if lowest is None else min(lowest, pod.priority)
        if pod.uid in held:
            continue
        promised = _promised(pod, Free(slots), model)
        if promised is not None:
            held[pod.uid] = promised
        elif pod.uid in on_way:
            held[pod.uid] = on_way[pod.uid].held
        else:
            unknown.append(pod)
    free = free_after(slots, held.values())
    for pod in sorted(unknown, key=lambda pod: (pod.created, pod.uid)):
        _take_by_guess(pod, free, model)
    shape = tuple((slot.units, slot.healthy) for slot in slots)
    return Room(
        node=node,
        problem=node.problem(base),
        model=model,
        free=free,
        shape=shape,
        lowest_priority=lowest,
        level=_level(free),
        empty=tuple(sorted((slot.units for p, slot in enumerate(slots) if free.is_empty(p)), reverse=True)),
    )


def _promised(pod: PodView, empty: Free, model: ResourceModel) -> tuple[Share, ...] | None:
    """Return what a pod's annotation promises it; None without a valid one."""
    if pod.cards is None:
        return None
    plan = planned(pod.containers, model)
    return footprint(plan, pod.cards, empty.slots) if isinstance(plan, PodPlan) else None


def _take_by_guess(pod: PodView, free: Free, model: ResourceModel) -> None:
    plan = planned(pod.containers, model)
    placed = place(plan, free, Policy.FIRST_FIT) if isinstance(plan, PodPlan) else None
    if not isinstance(placed, Placement):
        return  # it fits on no card: the node's plugin refuses it in PreStart
    for share in placed.held:
        position = free.position(share.card)
        if position is not None:
            free.take(position, share.memory_units, share.core)
