"""PodDisruptionBudgets as a preemption counts them: how many of some victims they do not allow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgegpu_core.podview import PodView

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement of a label selector."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Labels) -> bool:
        """Say whether labels meet it; an operator that nobody knows is met by none."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return self.key not in labels or labels[self.key] not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget: whom it protects, and how many of them may go now."""

    namespace: str
    requirements: tuple[LabelRequirement, ...]
    allowed: int
    disrupted: frozenset[str]
    """Names of pods that are on their way out already and count no more."""

    def protects(self, pod: PodView) -> bool:
        """Say whether it counts a pod; as in the scheduler no labels and an empty selector match nothing."""
        if not pod.labels or not self.requirements or pod.namespace != self.namespace or pod.name in self.disrupted:
            return False
        labels = dict(pod.labels)
        return all(requirement.matches(labels) for requirement in self.requirements)


def read_budget(item: Mapping[str, Any]) -> Budget:
    """Read a PodDisruptionBudget of the API."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    selector = (item.get("spec") or {}).get("selector") or {}
    wanted = [
        LabelRequirement(key, "In", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    wanted += [
        LabelRequirement(str(one.get("key")), str(one.get("operator")), frozenset(one.get("values") or ()))
        for one in selector.get("matchExpressions") or ()
    ]
    return Budget(
        namespace=str(metadata.get("namespace", "")),
        requirements=tuple(wanted),
        allowed=int(status.get("disruptionsAllowed") or 0),
        disrupted=frozenset(status.get("disruptedPods") or ()),
    )


def violations(victims: Iterable[PodView], budgets: Sequence[Budget]) -> int:
    """Return how many of the victims go beyond a budget (kube-scheduler 1.33, filterPodsWithPDBViolation)."""
    left = [budget.allowed for budget in budgets]
    count = 0
    for pod in victims:
        beyond = False
        for index, budget in enumerate(budgets):
            if budget.protects(pod):
                left[index] -= 1
                beyond = beyond or left[index] < 0
        count += beyond
    return count
