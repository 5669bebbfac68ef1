"""The nodes on which a pod fits by their own numbers, and the reasons for the others."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegpu_sim.api.objects import Json, amount
from edgegpu_sim.kubelet.admission import request_of

_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a pod cannot go to one node; `unresolvable`: no other pod's end would help."""

    reasons: tuple[str, ...]
    unresolvable: bool = False


@dataclass(slots=True)
class NodeUse:
    """The resources of one node that are in use."""

    pods: int = 0
    amounts: Counter[str] = field(default_factory=Counter)


def uses(pods: Iterable[tuple[str, Json]]) -> dict[str, NodeUse]:
    """Return what is in use on each node by pods that are bound or being bound there."""
    found: dict[str, NodeUse] = {}
    for node, pod in pods:
        use = found.setdefault(node, NodeUse())
        use.pods += 1
        use.amounts.update(request_of(pod["spec"]))
    return found


def refusal(pod: Json, node: Json, use: NodeUse) -> NodeRefusal | None:
    """Return why a pod does not fit on a node; None when it does."""
    spec, node_spec = pod["spec"], node.get("spec") or {}
    labels = node["metadata"].get("labels") or {}
    if node_spec.get("unschedulable"):
        return NodeRefusal(("node(s) were unschedulable",), unresolvable=True)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return NodeRefusal(("node(s) didn't match Pod's node affinity/selector",), unresolvable=True)
    room: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    reasons = ["Too many pods"] if use.pods + 1 > amount(room.get("pods", 0)) else []
    hopeless = False
    for resource, size in request_of(spec).items():
        offered = amount(room.get(resource, 0))
        if use.amounts[resource] + size > offered:
            reasons.append(f"Insufficient {resource}")
            hopeless = hopeless or size > offered
    return NodeRefusal(tuple(reasons), unresolvable=hopeless) if reasons else None


def message(refusals: Mapping[str, NodeRefusal], *, nodes: int, preemption: bool) -> str:
    """Return the event's text: `0/2 nodes are available: 1 REASON, 1 REASON. preemption: …`."""
    head = f"0/{nodes} nodes are available"
    reasons = Counter(reason for one in refusals.values() for reason in one.reasons)
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    text = f"{head}: {told}." if told else f"{head}."
    if not preemption or not refusals:
        return text
    help_ = Counter(_NO_HELP if one.unresolvable else _NO_VICTIMS for one in refusals.values())
    tail = ", ".join(sorted(f"{count} {reason}" for reason, count in help_.items()))
    return f"{text} preemption: {head}: {tail}."
