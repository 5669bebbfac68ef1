"""Random clusters: filter's yes is right on what is free by brute force, whatever way the cluster came about."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from integration.extender_world import MODEL, Json, node, pod, uuid

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.placement import Placement, PodPlan, Policy, Share, place, plan_pod
from edgegpu_core.podview import PodView, pod_view
from edgegpu_plugin.extender.assumed import Assumption
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.filter import filter_nodes
from edgegpu_plugin.extender.node_capacity import known_node

ASK = st.tuples(st.integers(1, 20), st.sampled_from([1, 10, 40, 100]))
WHOLE = st.tuples(st.integers(0, 60), st.sampled_from([100, 200, 300]))
SIZES = st.lists(st.integers(4, 29), min_size=1, max_size=4)


@dataclass(frozen=True)
class Holder:
    """Something that holds a share of a card, and how the extender comes to know of it."""

    ask: tuple[int, int]
    card: int
    known_by: str


HOLDER = st.builds(
    Holder,
    ask=ASK,
    card=st.integers(0, 3),
    known_by=st.sampled_from(["report", "report, wrong annotation", "annotation", "assumed", "ended"]),
)
NODE = st.tuples(SIZES, st.lists(HOLDER, max_size=6))
ASKING = st.tuples(
    st.lists(ASK, min_size=1, max_size=3) | st.lists(ASK | WHOLE, min_size=1, max_size=2),
    st.none() | ASK,
    st.sampled_from([None, *Policy]),
)


@settings(deadline=None, max_examples=200)
@given(nodes=st.lists(NODE, min_size=1, max_size=7), asking=ASKING, deleted=st.booleans())
def test_filter_says_yes_exactly_where_the_pod_fits(
    nodes: list[tuple[list[int], list[Holder]]],
    asking: tuple[list[tuple[int, int]], tuple[int, int] | None, Policy | None],
    deleted: bool,  # noqa: FBT001
) -> None:
    asks, init, policy = asking
    new = view(pod("new", *asks, init=init, policy=policy.value if policy else None))
    state = ClusterState(MODEL, clock=lambda: 0.0)
    expected: list[str] = []
    for number, (sizes, holders) in enumerate(nodes):
        name = f"n{number}"
        build(state, name, sizes, holders)
        state.capacities([name])  # what is kept now must not be believed later
        if deleted and holders:
            state.delete_pod(f"uid-{name}-0")
        free = by_brute_force(name, sizes, without_first(holders) if deleted and holders else holders)
        plan = plan_pod(new.containers, MODEL)
        assert isinstance(plan, PodPlan) or init is not None
        if isinstance(plan, PodPlan) and isinstance(place(plan, free, policy or Policy.FIRST_FIT), Placement):
            expected.append(name)
    names = [f"n{number}" for number in range(len(nodes))]
    verdict = filter_nodes(new, names, rooms=state.capacities(names), model=MODEL)
    assert verdict.fitting == expected
    assert sorted([*verdict.fitting, *verdict.unresolvable]) == sorted(names)


def without_first(holders: list[Holder]) -> list[Holder]:
    """What is left when the first one's pod is deleted: a share that the report knows is held all the same."""
    first = holders[0]
    return holders if first.known_by.startswith("report") else [Holder(first.ask, first.card, "ended"), *holders[1:]]


def view(item: Json) -> PodView:
    found = pod_view(item, MODEL)
    assert found is not None
    return found


def share(name: str, sizes: list[int], holder: Holder) -> Share:
    units, core = holder.ask
    card = holder.card % len(sizes)
    return Share(uuid(name, card), sizes[card] if core == 100 else units, core)


def build(state: ClusterState, name: str, sizes: list[int], holders: list[Holder]) -> None:
    held: dict[str, tuple[Share, ...]] = {}
    for index, holder in enumerate(holders):
        found, card = share(name, sizes, holder), holder.card % len(sizes)
        if holder.known_by == "report, wrong annotation":
            card = (card + 1) % len(sizes)
        text = f"{name}-{index}"
        phase = "Succeeded" if holder.known_by == "ended" else "Running"
        item = pod(text, holder.ask, node=name, cards={"c0": (uuid(name, card),)}, phase=phase)
        if holder.known_by.startswith("report"):
            held[f"uid-{text}"] = (found,)
        if holder.known_by == "assumed":
            state.assume(Assumption(view(item), (found,), 0.0))
        else:
            state.change_pod(f"uid-{text}", view(item))
    item = node(name, sizes, held=held)
    state.change_node(item["metadata"]["uid"], known_node(item, MODEL))


def by_brute_force(name: str, sizes: list[int], holders: list[Holder]) -> FreeAmounts:
    free = FreeAmounts(tuple(CardCapacity(uuid(name, i), str(i), units) for i, units in enumerate(sizes)))
    for holder in holders:
        if holder.known_by != "ended":
            found = share(name, sizes, holder)
            position = free.position(found.card)
            assert position is not None
            free.take(position, found.memory_units, found.core)
    return free
