"""Pods without a node, with the reasons in numbers of each card, whatever the scheduler's event says.

kube-scheduler asks an extender only about nodes where the sums suffice. Where they do not, its event says only
"Insufficient baidu.com/vcuda-memory", but the extender knows the numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView
from edgegpu_core.reasons import counted_beside
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.filter import GROUPED_FROM, filter_nodes
from edgegpu_plugin.extender.node_capacity import NodeCapacity

MOST_PODS = 200
"""How many pods are judged for one answer; the others are only counted."""

_MOST_NAMES = 3
_NO_NODE = "no node of this cluster offers cards"
_UNSEEN = "the scheduler has not said anything about it yet"


def pending_part(state: ClusterState, model: ResourceModel) -> dict[str, Any]:
    """Return the status document's entries about pods that wait for a node, the oldest first."""
    waiting = sorted(
        (pod for pod in state.pods() if not pod.node and not pod.is_terminal and not pod.deleting),
        key=lambda pod: (pod.created, pod.full_name),
    )
    if not waiting:
        return {"pending": [], "pending_more": 0}
    rooms = state.capacities(node.name for node in state.nodes() if node.report is not None)
    judged = waiting[:MOST_PODS]
    told = zip(judged, reasons_of(judged, rooms, model), strict=True)
    rows = [row for pod, reason in told for row in _rows(pod, reason)]
    return {"pending": rows, "pending_more": max(0, len(waiting) - MOST_PODS)}


def nodes_part(state: ClusterState) -> list[dict[str, Any]]:
    """Return the nodes that offer cards, with what is free on each card; nothing where this node is the only one."""
    known = [node.name for node in state.nodes() if node.report is not None]
    if len(known) <= 1:
        return []
    return [
        {
            "name": name,
            "cards": len(room.free.slots),
            "units": sum(slot.units for slot in room.free.slots if slot.healthy),
            "units_free": sum(room.free.memory),
        }
        for name, room in state.capacities(known).items()
    ]


def reasons_of(pods: Sequence[PodView], rooms: Mapping[str, NodeCapacity], model: ResourceModel) -> list[str]:
    """Return for each pod why it has no node; pods with the same request are judged once."""
    judged: dict[tuple[object, ...], tuple[bool, str]] = {}
    reasons = []
    for pod in pods:
        asked = (pod.containers, pod.priority, pod.policy, pod.bad_policy, pod.choice)
        if asked not in judged:
            judged[asked] = _judged(pod, rooms, model)
        fitting, words = judged[asked]
        reasons.append(f"{words}; {_said(pod)}" if fitting else words)
    return reasons


def _judged(pod: PodView, rooms: Mapping[str, NodeCapacity], model: ResourceModel) -> tuple[bool, str]:
    """Return whether some node has room, and its text; without room the text has the numbers of the cards."""
    if not rooms:
        return False, _NO_NODE
    verdict = filter_nodes(pod, rooms, rooms=rooms, model=model)
    if verdict.fitting:
        beside = [name for node in verdict.fitting for name in _counted_beside(rooms[node], pod)]
        return True, f"has room on {_some(verdict.fitting)}{counted_beside(beside)}"
    refused = verdict.unresolvable
    reasons = set(refused.values())
    if len(rooms) >= GROUPED_FROM:
        return False, f"{'; '.join(sorted(reasons))}{_most_free(pod, rooms, model)}"
    if len(reasons) == 1:
        return False, reasons.pop()
    return False, "; ".join(f"{name}: {reason}" for name, reason in refused.items())


def _counted_beside(room: NodeCapacity, pod: PodView) -> tuple[str, ...]:
    """Return the pods on cards that are not offered, where the scheduler's sums have no room for a pod."""
    return () if room.sums_have_room(pod) else room.pods_beside()


def _most_free(pod: PodView, rooms: Mapping[str, NodeCapacity], model: ResourceModel) -> str:
    """Return the numbers of one node: that with the most memory free on one card."""
    name = max(rooms, key=lambda name: max(rooms[name].free.memory, default=0))
    verdict = filter_nodes(pod, [name], rooms=rooms, model=model)
    _, numbers, words = verdict.unresolvable[name].partition("; ")
    return f"; most is free on {name}: {words}" if numbers else ""


def _said(pod: PodView) -> str:
    return f"the scheduler said last: {pod.unscheduled}" if pod.unscheduled else _UNSEEN


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more nodes"


def _rows(pod: PodView, reason: str) -> list[dict[str, Any]]:
    return [
        {
            "namespace": pod.namespace,
            "pod": pod.name,
            "uid": pod.uid,
            "container": container.name,
            "memory_units": container.request.memory_units,
            "core": container.request.core,
            "cards": [],
            "phase": pod.phase,
            "created": pod.created,
            "state": "pending",
            "reason": reason,
        }
        for container in pod.containers
    ]
