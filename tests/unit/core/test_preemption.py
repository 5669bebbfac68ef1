from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PodPlan, Share, fits, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.preemption import (
    Budget,
    CardHolder,
    LabelRequirement,
    choose_victims,
    free_without,
    read_budget,
    violations,
)
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts, total

SLOTS = (CardCapacity("A", "0", 29), CardCapacity("B", "1", 29))


def plan(*asks: tuple[int, int], init: tuple[int, int] | None = None) -> PodPlan:
    containers = tuple(
        ContainerRequest(f"c{i}", ContainerRole.APP, RequestedAmounts(*ask)) for i, ask in enumerate(asks)
    )
    if init is not None:
        containers = (ContainerRequest("init", ContainerRole.INIT, RequestedAmounts(*init)), *containers)
    found = plan_pod(containers, ResourceModel())
    assert isinstance(found, PodPlan)
    return found


def holder(
    name: str,
    *shares: tuple[str, int],
    priority: int = 0,
    created: str = "",
    deleting: bool = False,
    mirrors: str = "",
    app: str = "",
) -> CardHolder:
    pod = PodView(
        uid=name,
        namespace="default",
        name=name,
        node="n",
        priority=priority,
        created=created,
        deleting=deleting,
        mirrors=mirrors,
        labels=(("app", app),) if app else (),
    )
    return CardHolder(name, tuple(Share(card, units, 1) for card, units in shares), pod)


def chosen(
    asked: PodPlan,
    *holders: CardHolder,
    priority: int = 10,
    budgets: Sequence[Budget] = (),
    slots: tuple[CardCapacity, ...] = SLOTS,
) -> list[str] | None:
    found = choose_victims(asked, priority, slots=slots, holders=holders, budgets=budgets)
    return None if found is None else [pod.uid for pod in found]


FOUR = tuple(holder(f"low{i}", ("A" if i < 2 else "B", 10)) for i in range(4))


def test_victims_lie_on_one_card() -> None:
    assert chosen(plan((25, 1)), *FOUR) in (["low0", "low1"], ["low2", "low3"])
    assert chosen(plan((19, 1)), *FOUR) == ["low0"]
    assert chosen(plan((9, 1)), *FOUR) == []
    assert chosen(plan((30, 1)), *FOUR) is None


def test_the_lowest_go_and_as_few_as_possible() -> None:
    mixed = (holder("mid", ("A", 20), priority=5), holder("low1", ("B", 10)), holder("low2", ("B", 10)))
    assert chosen(plan((19, 1)), *mixed) in (["low1"], ["low2"])
    assert chosen(plan((25, 1)), *mixed) == ["low1", "low2"]  # two of the lowest rather than one that is higher
    small = (holder("a", ("A", 5)), holder("b", ("A", 5)), holder("c", ("A", 10)), holder("d", ("B", 29), priority=9))
    assert chosen(plan((19, 1)), *small) == ["c"]
    twins = (
        holder("old", ("A", 29), created="2026-01-01T00:00:00Z"),
        holder("new", ("B", 29), created="2026-02-01T00:00:00Z"),
    )
    assert chosen(plan((4, 1)), *twins) == ["new"]


def test_who_may_not_go() -> None:
    assert chosen(plan((25, 1)), *FOUR, priority=0) is None
    assert chosen(plan((25, 1)), holder("m", ("A", 29), mirrors="x"), holder("h", ("B", 29), priority=10)) is None
    assert chosen(plan((25, 1)), CardHolder("unknown", (Share("A", 29, 1),), None), holder("b", ("B", 29))) == ["b"]
    sick = (CardCapacity("A", "0", 29, healthy=False), CardCapacity("B", "1", 29))
    assert chosen(plan((25, 1)), *FOUR, slots=sick) == ["low2", "low3"]


def test_those_that_are_leaving_are_named_alone_when_that_is_enough() -> None:
    leaving = (holder("going", ("A", 20), deleting=True), holder("b", ("A", 9)), holder("c", ("B", 10)))
    assert chosen(plan((20, 1)), *leaving) == ["going"]
    assert chosen(plan((29, 1)), *leaving) in (["b"], ["c"])


def test_pods_of_several_containers_and_whole_cards() -> None:
    assert chosen(plan((25, 1), (25, 1)), *FOUR) == ["low0", "low1", "low2", "low3"]
    assert chosen(plan((0, 100)), *FOUR) in (["low0", "low1"], ["low2", "low3"])
    assert chosen(plan((0, 200)), *FOUR[:3]) == ["low0", "low1", "low2"]


def test_budgets_are_counted() -> None:
    kept = Budget("default", (LabelRequirement("app", "In", frozenset({"kept"})),), 1, frozenset())
    pods = (
        holder("k1", ("A", 10), app="kept"),
        holder("k2", ("A", 10), app="kept"),
        holder("f1", ("B", 10), priority=5),
        holder("f2", ("B", 10), priority=5),
    )
    assert chosen(plan((25, 1)), *pods) == ["k1", "k2"]
    assert chosen(plan((25, 1)), *pods, budgets=[kept]) == ["f1", "f2"]
    assert chosen(plan((19, 1)), *pods, budgets=[kept]) in (["k1"], ["k2"])  # one may go
    assert violations([one.pod for one in pods if one.pod], [kept]) == 1


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"matchLabels": {"app": "x"}}, True),
        ({"matchLabels": {"app": "y"}}, False),
        ({}, False),
        (None, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}, False),
    ],
)
def test_whom_a_budget_protects(selector: object, matches: bool) -> None:  # noqa: FBT001  (a table)
    item = {"metadata": {"namespace": "default", "name": "b"}, "spec": {"selector": selector}, "status": {}}
    one = holder("p", ("A", 1), app="x").pod
    assert one is not None
    assert read_budget(item).protects(one) is matches
    assert not read_budget({**item, "metadata": {"namespace": "other"}}).protects(one)
    assert not read_budget({**item, "status": {"disruptedPods": {"p": "2026"}}}).protects(one)


def test_what_the_scheduler_counts_for_a_pod() -> None:
    def of(*parts: tuple[ContainerRole, int]) -> RequestedAmounts:
        return total(
            ContainerRequest(str(i), role, RequestedAmounts(units, 1)) for i, (role, units) in enumerate(parts)
        )

    assert of((ContainerRole.APP, 3), (ContainerRole.APP, 4)) == RequestedAmounts(7, 2)
    assert of((ContainerRole.INIT, 10), (ContainerRole.APP, 4)) == RequestedAmounts(10, 1)
    assert of((ContainerRole.SIDECAR, 2), (ContainerRole.INIT, 10), (ContainerRole.APP, 4)) == RequestedAmounts(12, 2)


@given(
    units=st.lists(st.tuples(st.sampled_from("AB"), st.integers(1, 14), st.integers(0, 3)), max_size=12),
    asked=st.integers(1, 29),
    priority=st.integers(0, 4),
)
def test_victims_are_lower_needed_and_enough(units: list[tuple[str, int, int]], asked: int, priority: int) -> None:
    used = {"A": 0, "B": 0}
    holders = []
    for number, (card, count, rank) in enumerate(units):
        if used[card] + count <= 29:
            used[card] += count
            holders.append(holder(f"p{number}", (card, count), priority=rank))
    wanted = plan((asked, 1))
    found = choose_victims(wanted, priority, slots=SLOTS, holders=holders)
    lower = frozenset(one.uid for one in holders if one.pod and one.pod.priority < priority)
    if found is None:
        assert not fits(wanted, free_without(SLOTS, holders, lower))
        return
    gone = frozenset(pod.uid for pod in found)
    assert gone <= lower
    assert fits(wanted, free_without(SLOTS, holders, gone))
    assert all(not fits(wanted, free_without(SLOTS, holders, gone - {uid})) for uid in gone)
    assert len({share.card for one in holders if one.uid in gone for share in one.shares}) <= 1


class _Counted(list[CardHolder]):
    """Counts how often it was gone through: once for each question whether some choice is enough, and once before."""

    looks = 0

    def __iter__(self) -> Iterator[CardHolder]:
        self.looks += 1
        return super().__iter__()


@given(
    units=st.lists(st.tuples(st.sampled_from("AB"), st.integers(1, 6), st.integers(0, 3)), max_size=14),
    asked=st.lists(st.integers(1, 14), min_size=2, max_size=8),
    priority=st.integers(0, 4),
)
def test_pods_of_several_containers_ask_one_question_for_each_lower_pod(
    units: list[tuple[str, int, int]], asked: list[int], priority: int
) -> None:
    used = {"A": 0, "B": 0}
    holders = _Counted()
    for number, (card, count, rank) in enumerate(units):
        if used[card] + count <= 29:
            used[card] += count
            holders.append(holder(f"p{number}", (card, count), priority=rank))
    wanted = plan(*((count, 1) for count in asked))
    found = choose_victims(wanted, priority, slots=SLOTS, holders=holders)
    looks = holders.looks
    lower = frozenset(one.uid for one in holders if one.pod and one.pod.priority < priority)
    assert looks <= len(lower) + 3  # to list them, as it is, with all gone, and with each spared
    if found is None:
        assert not fits(wanted, free_without(SLOTS, holders, lower))
        return
    gone = frozenset(pod.uid for pod in found)
    assert gone <= lower
    assert fits(wanted, free_without(SLOTS, holders, gone))
    assert all(not fits(wanted, free_without(SLOTS, holders, gone - {uid})) for uid in gone)
