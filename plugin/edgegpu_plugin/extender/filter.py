"""The verb filter: which nodes have room for a pod, and why the others have none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core import reasons
from edgegpu_core.choices.pod_choice import choice_refusal
from edgegpu_core.inventory import FreeAmounts
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PlacementRefusal, PodPlan, Policy, fits, parse_policy, place, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.preemption import choose_victims, free_without
from edgegpu_core.request import ImpossibleRequest, PlaceableRequest
from edgegpu_plugin.extender.node_capacity import NodeCapacity

GROUPED_FROM = 6
"""From this number of nodes on, reasons have no numbers: an event holds 1 024 characters and counts equal reasons."""

_SEARCHED_WHOLLY = 4096
"""The number of ways to place a pod's containers up to which placement tries all, whatever the policy."""

UNKNOWN_NODE = "is not known to edgegpu yet"


@dataclass(slots=True)
class FilterVerdict:
    """The nodes that have room, and the others with their reasons.

    The scheduler gets the others as unresolvable. It asks an extender only about nodes whose sums have room, and its
    preemption frees sums: its dry run on such a node finds no victim (`expected at least one victim pod`, 1.20 to
    1.34), or evicts pods that are in nobody's way. Where a sum is too small the scheduler does not ask filter, and the
    verb preempt chooses the victims.
    """

    fitting: list[str] = field(default_factory=list)
    unresolvable: dict[str, str] = field(default_factory=dict)


def policy_problem(pod: PodView) -> str:
    """Return what is wrong with a pod's policy annotation; empty when nothing is."""
    if not pod.bad_policy:
        return ""
    try:
        parse_policy(pod.bad_policy)
    except ValueError as error:
        return f"annotation edgegpu.io/policy: {error}"
    return ""


def filter_nodes(
    pod: PodView, names: Iterable[str], *, rooms: Mapping[str, NodeCapacity], model: ResourceModel
) -> FilterVerdict:
    """Sort the nodes into those with room for a pod and the others.

    Args:
        pod: a pod that asks for GPU shares.
        names: the nodes in question.
        rooms: what is free on each node; unknown nodes are missing.
        model: the resource model for nodes that report none.
    """
    names = list(names)
    problem = policy_problem(pod)
    if problem:
        return FilterVerdict(unresolvable=dict.fromkeys(names, problem))
    pod_filter = _PodFilter(pod, model, grouped=len(names) >= GROUPED_FROM)
    verdict = FilterVerdict()
    for name in names:
        reason = pod_filter.refusal(rooms.get(name))
        if reason:
            verdict.unresolvable[name] = reason
        else:
            verdict.fitting.append(name)
    return verdict


class _PodFilter:
    """One pod's plans and reasons, made once for all nodes with the same resource model."""

    def __init__(self, pod: PodView, model: ResourceModel, *, grouped: bool) -> None:
        self._pod = pod
        self._model = model
        self._grouped = grouped
        self._checks: dict[ResourceModel, _FitCheck | ImpossibleRequest] = {}
        self._last: tuple[ResourceModel | None, _FitCheck | ImpossibleRequest] = (None, ImpossibleRequest(""))

    def refusal(self, room: NodeCapacity | None) -> str:
        """Return why the pod cannot go to a node, None for an unknown one; empty when it can."""
        check = self._fit_check(self._model if room is None else room.model)
        if isinstance(check, ImpossibleRequest):
            return check.reason
        if room is None:
            return UNKNOWN_NODE
        if room.problem or room.node.report is None:
            return room.problem or UNKNOWN_NODE
        if refusal := choice_refusal(self._pod.choice, room.node.report.allowed):
            return refusal
        reason = check.refusal(room, self._pod.policy or room.node.report.policy)
        if not reason or self._grouped:
            return reason
        return reason + reasons.kept_for(room.kept_for) + self._in_the_way(check, room)

    def _fit_check(self, model: ResourceModel) -> "_FitCheck | ImpossibleRequest":
        # Equal nodes share one model object, and a thousand look-ups by its value would take a millisecond.
        if self._last[0] is not model:
            found = self._checks.get(model)
            if found is None:
                plan = plan_pod(self._pod.containers, model)
                found = plan if isinstance(plan, ImpossibleRequest) else _FitCheck(plan, grouped=self._grouped)
                self._checks[model] = found
            self._last = (model, found)
        return self._last[1]

    def _in_the_way(self, check: "_FitCheck", room: NodeCapacity) -> str:
        """Return the text that names pods in the way, unless the node's sums lack room, where the scheduler evicts."""
        lowest = room.lowest_priority
        if lowest is None or lowest >= self._pod.priority or not room.sums_have_room(self._pod):
            return ""
        return check.in_the_way(room, self._pod)


class _FitCheck:
    """The check whether one plan fits, for many nodes."""

    def __init__(self, plan: PodPlan, *, grouped: bool) -> None:
        first = plan.containers[0][1]
        self._plan = plan
        self._first = first
        self._grouped = grouped
        self._single = len(plan.containers) == 1 and not plan.one_card
        asks = [ask for _, ask in plan.containers]
        self._shares = [] if plan.one_card or any(ask.whole for ask in asks) else asks
        self._words = reasons.grouped(first, plan.model) if self._single and grouped else ""

    def refusal(self, room: NodeCapacity, policy: Policy) -> str:
        """Return why the plan does not fit, as long as the event allows; empty when it fits."""
        if self._fits_quickly(room):
            return ""
        if self._single and self._grouped:
            return self._words
        # The search for several containers depends on the policy: bind will find the same placement.
        answer = place(self._plan, room.free, policy)
        if not isinstance(answer, PlacementRefusal):
            return ""
        if not self._grouped:
            return answer.reason
        head, numbers, _ = answer.reason.partition(";")
        return f"{head}; no card has that free" if numbers else head

    def _fits_quickly(self, room: NodeCapacity) -> bool:
        """Return whether a cheap check shows that the plan fits; for a single container the check is exact."""
        if self._single:
            return _fits_single(self._first, room)
        if not self._shares or len(room.free.slots) ** len(self._shares) > _SEARCHED_WHOLLY:
            return False
        return _fit_in_turn(self._shares, room.free)

    def in_the_way(self, room: NodeCapacity, pod: PodView) -> str:
        """Return the text with the pods of lower priority without which it would fit; empty when there are none.

        Where it fits as soon as pods have ended that are ending, perhaps by a preemption, no other is in the way.
        """
        leaving = frozenset(holder.uid for holder in room.holders if holder.is_leaving)
        if leaving and fits(self._plan, free_without(room.free.slots, room.holders, leaving)):
            return reasons.ROOM_COMES
        victims = choose_victims(self._plan, pod.priority, slots=room.free.slots, holders=room.holders)
        if not victims:
            return ""
        return reasons.in_the_way(tuple(victim.full_name for victim in victims))


def _fits_single(ask: PlaceableRequest, room: NodeCapacity) -> bool:
    """Return what `placement.fits` returns for a single container, but faster: there may be a thousand nodes.

    A card that is out of order has nothing free and is not among the empty ones.
    """
    if ask.whole:
        empty = room.empty
        if len(empty) < ask.cards:
            return False
        parts = ask.memory_parts()
        return empty[ask.cards - 1] >= parts[-1] and empty[parts.count(parts[0]) - 1] >= parts[0]
    for memory, core in zip(room.free.memory, room.free.core, strict=True):
        if memory >= ask.memory_units and core >= ask.core:
            return True
    return False


def _fit_in_turn(asks: list[PlaceableRequest], free: FreeAmounts) -> bool:
    """Return whether several shares fit when each takes the first card with room; if not, a search may find a way."""
    memory, core = free.memory.copy(), free.core.copy()
    for ask in asks:
        for position, units in enumerate(memory):
            if units >= ask.memory_units and core[position] >= ask.core:
                memory[position] -= ask.memory_units
                core[position] -= ask.core
                break
        else:
            return False
    return True
