"""The choice of the pods that have to go so that one of higher priority fits on a card: the lowest, as few as possible.

PodDisruptionBudgets count as in the scheduler: by the number of victims that go beyond them.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.ledger import free_after
from edgegpu_core.placement import PodPlan, Share, fits
from edgegpu_core.podview import PodView

Labels = Mapping[str, str]


def meets(value: str | None, operator: str, values: Container[str]) -> bool:
    """Return whether a label's value, None without the label, meets an operator of every kind of selector."""
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement of a label selector."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Labels) -> bool:
        """Return whether labels meet the requirement; with an unknown operator none do."""
        return meets(labels.get(self.key), self.operator, self.values)


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget: which pods it protects, and how many of them may go now."""

    namespace: str
    requirements: tuple[LabelRequirement, ...]
    allowed: int
    disrupted: frozenset[str]
    """Names of pods that are being disrupted already and no longer count."""

    def protects(self, pod: PodView) -> bool:
        """Return whether the budget counts a pod; as in the scheduler no labels and an empty selector match nothing."""
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
"""Up to this number of candidates every choice of victims is tried; among more, pods are spared one by one.

For a pod of several containers they are always spared one by one, since each check searches all cards.
"""


@dataclass(frozen=True, slots=True)
class CardHolder:
    """One holder of shares of a node's cards; `pod` is None when it is unknown whose devices they are."""

    uid: str
    shares: tuple[Share, ...]
    pod: PodView | None
    is_kept: bool = False
    """Whether it is room that is kept for a nominated pod."""

    @property
    def is_leaving(self) -> bool:
        """Whether it goes by itself: its pod is being deleted, or has ended and kubelet has not let go yet."""
        return not self.is_kept if self.pod is None else self.pod.deleting


Victims = tuple[PodView, ...]
_Fits = Callable[[frozenset[str]], bool]


def may_go(holder: CardHolder, priority: int) -> bool:
    """Return whether a pod of this priority may evict a holder; no static pod: deleting its mirror ends nothing."""
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

    The order is that in which the scheduler ranks nodes: the fewest pods beyond a budget, then the lowest priority,
    then the fewest pods, then the youngest. Pods that are being deleted cost nothing: when their end is enough, only
    they are returned.

    Args:
        plan: what the pod asks for.
        priority: the pod's priority; only pods of lower priority may go.
        slots: the node's cards.
        holders: all holders of shares of these cards; room kept for a nominated pod counts as a holder without a pod.
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
    """Yield groups of candidates, each with a function that returns whether the end of some of them is enough.

    For a share of one card there is a group per card, and the function only sums numbers. For everything else the
    node is one group, and the function searches its cards.
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
    """Return a function that returns whether the shares of some pods make up for what a card lacks."""

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
    """Yield one choice that is enough and of which no pod can be spared, with one check for each pod."""
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
    """Return a sort key, the most important first: higher priority, then older (MoreImportantPod of kube-scheduler)."""
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
    """A time that sorts before every earlier one."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
