"""Which pods of a node have to go so that one of higher priority fits on a card: the lowest, and as few as possible.

PodDisruptionBudgets count as in the scheduler: how many of some victims they do not allow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.ledger import free_after
from edgegpu_core.placement import PodPlan, Share, fits
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


_MOST_TRIED_WHOLLY = 9
"""Up to so many pods every choice of victims is tried; of more, the most important are spared one by one.

So it is for pods of several containers however few the others are: each question is a search over the cards.
"""


@dataclass(frozen=True, slots=True)
class CardHolder:
    """Who holds something of a node's cards; `pod` is None where nobody knows whose devices they are."""

    uid: str
    shares: tuple[Share, ...]
    pod: PodView | None


Victims = tuple[PodView, ...]
_Fits = Callable[[frozenset[str]], bool]


def may_go(holder: CardHolder, priority: int) -> bool:
    """Say whether a pod of this priority may take a holder's place; deleting a static pod's mirror ends nothing."""
    pod = holder.pod
    return pod is not None and not pod.mirrors and not pod.is_static and pod.priority < priority


def free_without(slots: tuple[CardCapacity, ...], holders: Iterable[CardHolder], gone: frozenset[str]) -> FreeAmounts:
    """Return what is free when some of the holders are gone."""
    return free_after(slots, (holder.shares for holder in holders if holder.uid not in gone))


def choose_victims(
    plan: PodPlan,
    priority: int,
    *,
    slots: tuple[CardCapacity, ...],
    holders: Sequence[CardHolder],
    budgets: Sequence[Budget] = (),
) -> Victims | None:
    """Choose the pods that have to go so that a pod fits; None when no choice helps, empty when it fits as it is.

    As the scheduler ranks nodes: the fewest that a budget protects, then the lowest priority, then the fewest pods,
    then the youngest. A pod that is being deleted costs nothing: when its going is enough, it alone is named.

    Args:
        plan: what the pod asks for.
        priority: of the pod; only lower ones may go.
        slots: the node's cards.
        holders: all who hold something of them; what is kept for a nominated pod counts as a holder without a pod.
        budgets: all PodDisruptionBudgets.
    """
    if fits(plan, free_without(slots, holders, frozenset())):
        return ()
    lower = [holder for holder in holders if may_go(holder, priority)]
    leaving = frozenset(holder.uid for holder in lower if holder.pod is not None and holder.pod.deleting)
    if leaving and fits(plan, free_without(slots, holders, leaving)):
        return tuple(holder.pod for holder in lower if holder.uid in leaving and holder.pod is not None)
    staying = [holder for holder in lower if holder.uid not in leaving]
    best: tuple[tuple[object, ...], Victims] | None = None
    for candidates, enough in _questions(plan, slots=slots, holders=holders, staying=staying, leaving=leaving):
        few = len(candidates) <= _MOST_TRIED_WHOLLY and (len(plan.containers) == 1 or plan.one_card)
        for victims in (_every_choice if few else _spared_in_turn)(candidates, enough, budgets):
            cost = _cost(victims, budgets)
            if best is None or cost < best[0]:
                best = cost, victims
    return None if best is None else best[1]


def _questions(
    plan: PodPlan,
    *,
    slots: tuple[CardCapacity, ...],
    holders: Sequence[CardHolder],
    staying: Sequence[CardHolder],
    leaving: frozenset[str],
) -> Iterator[tuple[list[PodView], _Fits]]:
    """Yield groups of pods of which some may have to go, with the question whether it is enough that some are gone.

    A share of one card is asked card by card, in numbers alone; everything else of the node as a whole.
    """
    ask = plan.containers[0][1]
    if len(plan.containers) > 1 or ask.whole:
        pods = [holder.pod for holder in staying if holder.pod is not None]
        yield pods, lambda gone: fits(plan, free_without(slots, holders, leaving | gone))
        return
    free = free_without(slots, holders, leaving)
    for position, slot in enumerate(slots):
        on_card = {
            holder.uid: (holder.pod, share)
            for holder in staying
            for share in holder.shares
            if share.card == slot.uuid and holder.pod is not None
        }
        if slot.healthy and on_card:
            memory, core = ask.memory_units - free.memory[position], ask.core - free.core[position]
            shares = {uid: share for uid, (_, share) in on_card.items()}
            yield [pod for pod, _ in on_card.values()], _enough(shares, memory, core)


def _enough(shares: dict[str, Share], memory: int, core: int) -> _Fits:
    """Return the question whether some shares of a card make up for what is missing there."""

    def enough(gone: frozenset[str]) -> bool:
        freed = [shares[uid] for uid in gone]
        return sum(share.memory_units for share in freed) >= memory and sum(share.core for share in freed) >= core

    return enough


def _every_choice(candidates: list[PodView], enough: _Fits, _: Sequence[Budget]) -> Iterator[Victims]:
    """Yield all choices of victims that are enough."""
    ordered = sorted(candidates, key=_importance)
    if not enough(frozenset(pod.uid for pod in ordered)):
        return
    for count in range(1, len(ordered) + 1):
        for chosen in combinations(ordered, count):
            if enough(frozenset(pod.uid for pod in chosen)):
                yield chosen


def _spared_in_turn(candidates: list[PodView], enough: _Fits, budgets: Sequence[Budget]) -> Iterator[Victims]:
    """Yield one choice that is enough and of which nobody can be spared, with one question for each pod."""
    ordered = sorted(candidates, key=_importance)
    gone = {pod.uid: pod for pod in ordered}
    if not enough(frozenset(gone)):
        return
    protected = [pod for pod in ordered if any(budget.protects(pod) for budget in budgets)]
    names = {pod.uid for pod in protected}
    for pod in [*protected, *(pod for pod in ordered if pod.uid not in names)]:
        rest = gone.keys() - {pod.uid}
        if enough(frozenset(rest)):
            del gone[pod.uid]
    yield tuple(gone.values())


def _importance(pod: PodView) -> tuple[int, str, str]:
    """Sort the most important first: of higher priority, then older (MoreImportantPod of kube-scheduler)."""
    return -pod.priority, pod.created, pod.uid


def _cost(victims: Victims, budgets: Sequence[Budget]) -> tuple[object, ...]:
    youngest = sorted((pod.created for pod in victims), reverse=True)
    return (
        violations(victims, budgets),
        max(pod.priority for pod in victims),
        len(victims),
        sum(pod.priority for pod in victims),
        [_Latest(created) for created in youngest],
    )


class _Latest(str):
    """A time of which the later one is the smaller."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
