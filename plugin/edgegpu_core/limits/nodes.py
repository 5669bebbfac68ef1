"""The nodes that a pod may go to: selector, required affinity and taints, as the scheduler's own filters read them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegpu_core.preemption import meets
from edgegpu_core.sentences import sentence

_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable", "not-ready", "unreachable")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, which keeps pods away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod, which lets it onto a tainted node; an empty key or effect matches all."""

    key: str = ""
    value: str = ""
    effect: str = ""
    exists: bool = False

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the pod tolerates a taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One expression of a node selector term; with `name_field` it is about the node's name, not about a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    name_field: bool = False

    def holds(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node meets the expression; with an unknown operator none does."""
        value = name if self.name_field else labels.get(self.key)
        if self.operator in {"Gt", "Lt"}:
            return _compares(value, self.values, above=self.operator == "Gt")
        return meets(value, self.operator, self.values)


def _compares(value: str | None, values: tuple[str, ...], *, above: bool) -> bool:
    try:
        have, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if above else have < bound


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may go. `terms`: None without a required affinity; one of them must hold, an empty one never does."""

    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[tuple[NodeRequirement, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""

    def refusal(self, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> str:
        """Return why a pod cannot go to a node; empty when it can."""
        if self.node_name:
            return (
                "" if self.node_name == name else sentence("the pods are bound to node %(node)s", node=self.node_name)
            )
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return sentence("its label %(key)s is not %(value)s", key=key, value=value)
        if self.terms is not None and not any(
            term and all(one.holds(labels, name) for one in term) for term in self.terms
        ):
            return sentence("the pods' node affinity leaves it out")
        for taint in taints:
            if taint.effect in _KEEPING_AWAY and not any(one.tolerates(taint) for one in self.tolerations):
                name = f"{taint.key}={taint.value}" if taint.value else taint.key
                return sentence("its taint %(taint)s is not tolerated", taint=name)
        return ""


def read_constraints(spec: Mapping[str, Any], *, daemon: bool = False) -> Constraints:
    """Read the constraints of a pod spec; the DaemonSet controller gives its pods more tolerations."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    tolerations = [
        Toleration(
            key=str(one.get("key") or ""),
            value=str(one.get("value") or ""),
            effect=str(one.get("effect") or ""),
            exists=one.get("operator") == "Exists",
        )
        for one in spec.get("tolerations") or ()
    ]
    if daemon:
        tolerations += [Toleration(f"node.kubernetes.io/{name}", exists=True) for name in _PRESSURES]
    return Constraints(
        selector=dict(spec.get("nodeSelector") or {}),
        terms=None if affinity is None else tuple(_term(one) for one in affinity.get("nodeSelectorTerms") or ()),
        tolerations=tuple(tolerations),
        node_name=str(spec.get("nodeName") or ""),
    )


def _term(term: Mapping[str, Any]) -> tuple[NodeRequirement, ...]:
    return tuple(
        NodeRequirement(
            str(one.get("key")), str(one.get("operator")), tuple(map(str, one.get("values") or ())), by_name
        )
        for part, by_name in (("matchExpressions", False), ("matchFields", True))
        for one in term.get(part) or ()
    )


def read_taints(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Read a node object's taints; a cordoned node counts as tainted even before it has the taint."""
    spec = node.get("spec") or {}
    taints = [
        Taint(str(one.get("key")), str(one.get("value") or ""), str(one.get("effect")))
        for one in spec.get("taints") or ()
    ]
    if spec.get("unschedulable") and not any(taint.key == _UNSCHEDULABLE for taint in taints):
        taints.append(Taint(_UNSCHEDULABLE))
    return tuple(taints)
