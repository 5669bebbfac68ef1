"""Placement against brute force: nothing is overbooked, nothing that fits is refused, and policies only choose."""

import itertools
import random
from collections.abc import Iterator

from hypothesis import event, given, settings
from hypothesis import strategies as st
from property.cases import MODEL

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Placement, PlacementRefusal, PodPlan, Policy, fits, place, plan_pod
from edgegpu_core.request import ContainerRequest, ContainerRole, ImpossibleRequest, PlaceableRequest, RequestedAmounts

CORES = [1, 10, 30, 50, 80, 100, 200, 300]


@st.composite
def nodes(draw: st.DrawFn) -> FreeAmounts:
    """1 to 4 small cards, used at random, some out of order."""
    count = draw(st.integers(1, 4))
    slots = tuple(
        CardCapacity(f"GPU-{index}", str(index), draw(st.integers(0, 12)), draw(st.integers(0, 9)) > 0)
        for index in range(count)
    )
    free = FreeAmounts(slots)
    for position in range(count):
        if draw(st.booleans()):
            free.take(position, draw(st.integers(0, 12)), draw(st.sampled_from([0, *CORES])))
    return free


@st.composite
def containers(draw: st.DrawFn) -> tuple[ContainerRequest, ...]:
    """1 to 4 containers that ask for small amounts, init containers first."""
    requests = draw(
        st.lists(st.builds(RequestedAmounts, st.integers(1, 8), st.sampled_from(CORES)), min_size=1, max_size=4)
    )
    early = draw(st.integers(0, len(requests))) if draw(st.booleans()) else 0
    if early and draw(st.booleans()):
        requests = [requests[0]] * len(requests)
    roles = [
        draw(st.sampled_from([ContainerRole.INIT, ContainerRole.SIDECAR])) if n < early else ContainerRole.APP
        for n in range(len(requests))
    ]
    return tuple(
        ContainerRequest(f"c{n}", role, request) for n, (role, request) in enumerate(zip(roles, requests, strict=True))
    )


@st.composite
def plans(draw: st.DrawFn) -> PodPlan:
    """Pods that can be planned."""
    plan = draw(containers().map(lambda some: plan_pod(some, MODEL)).filter(lambda plan: isinstance(plan, PodPlan)))
    assert isinstance(plan, PodPlan)
    return plan


def spread_fits(memory: int, cards: tuple[int, ...], free: FreeAmounts) -> bool:
    """Whether memory can lie on empty cards so that they differ by one unit at most; tried part by part."""
    low, rest = divmod(memory, len(cards))
    return any(
        all(free.slots[p].units >= low + (p in more) for p in cards) for more in itertools.combinations(cards, rest)
    )


def options(ask: PlaceableRequest, free: FreeAmounts) -> Iterator[list[tuple[int, int, int]]]:
    """Every way in which one container can be booked."""
    everyone = range(len(free.slots))
    if ask.whole:
        for cards in itertools.combinations(everyone, ask.cards):
            if all(free.is_empty(p) for p in cards) and spread_fits(ask.memory_units, cards, free):
                yield [(p, free.slots[p].units, 100) for p in cards]
        return
    for p in everyone:
        if free.slots[p].healthy and free.memory[p] >= ask.memory_units and free.core[p] >= ask.core:
            yield [(p, ask.memory_units, ask.core)]


def brute_each(asks: list[PlaceableRequest], free: FreeAmounts) -> bool:
    if not asks:
        return True
    for bookings in options(asks[0], free):
        trial = free.copy()
        for booking in bookings:
            trial.take(*booking)
        if brute_each(asks[1:], trial):
            return True
    return False


def distinct_devices(plan: PodPlan, rng: random.Random) -> tuple[int, int]:
    """Walk through kubelet's reuse of an init container's devices with real sets; returns how many it takes in all."""
    taken: dict[str, set[int]] = {"memory": set(), "core": set()}
    pool: dict[str, set[int]] = {"memory": set(), "core": set()}
    for container, ask in plan.containers:
        for kind, amount in (("memory", ask.memory_units), ("core", ask.core * ask.cards)):
            reusable = sorted(pool[kind])
            rng.shuffle(reusable)
            given = set(reusable[:amount])
            given |= set(range(len(taken[kind]), len(taken[kind]) + amount - len(given)))
            taken[kind] |= given
            pool[kind] = pool[kind] | given if container.role is ContainerRole.INIT else pool[kind] - given
    return len(taken["memory"]), len(taken["core"])


def brute(plan: PodPlan, free: FreeAmounts, rng: random.Random) -> bool:
    asks = [ask for _, ask in plan.containers]
    if not plan.one_card:
        return brute_each(asks, free)
    memory, core = distinct_devices(plan, rng)
    whole = [ask for ask in asks if ask.whole]
    if whole:
        cards = max(ask.cards for ask in whole)
        return core <= 100 * cards and brute_each([PlaceableRequest(cards, memory, 100, whole=True)], free)
    return brute_each([PlaceableRequest(1, memory, core, whole=False)], free)


@given(plans(), nodes(), st.sampled_from(Policy), st.integers(0, 9))
@settings(max_examples=300)
def test_place_finds_a_place_whenever_there_is_one(plan: PodPlan, free: FreeAmounts, policy: Policy, seed: int) -> None:
    rng = random.Random(seed)
    before = free.copy()
    placed = place(plan, free, policy)
    event(f"{len(plan.containers)} containers, one card {plan.one_card}: {type(placed).__name__}")
    assert (free.memory, free.core) == (before.memory, before.core), "a trial changed the node"
    assert isinstance(placed, Placement) == brute(plan, free, rng)
    assert fits(plan, free) == isinstance(placed, Placement)
    assert {isinstance(place(plan, free, other), Placement) for other in Policy} == {isinstance(placed, Placement)}
    if isinstance(placed, PlacementRefusal):
        assert placed.never != brute(plan, FreeAmounts(free.slots), rng)
        assert placed.reason


@given(plans(), nodes(), st.sampled_from(Policy))
@settings(max_examples=200)
def test_what_is_placed_lies_on_cards_that_have_it(plan: PodPlan, free: FreeAmounts, policy: Policy) -> None:
    placed = place(plan, free, policy)
    if isinstance(placed, PlacementRefusal):
        return
    assert len({share.card for share in placed.held}) == len(placed.held)
    for share in placed.held:
        position = free.position(share.card)
        assert position is not None
        assert free.slots[position].healthy
        assert share.memory_units <= free.memory[position]
        assert share.core <= free.core[position]
    for container, ask in plan.containers:
        cards = placed.cards[container.name]
        assert len(set(cards)) == len(cards)
        assert len(cards) == max(a.cards for _, a in plan.containers) if plan.one_card else len(cards) == ask.cards
        held = {share.card: share for share in placed.held}
        if ask.whole:
            units = {slot.uuid: slot.units for slot in free.slots}
            assert all((held[card].memory_units, held[card].core) == (units[card], 100) for card in cards)
        else:
            assert held[cards[0]].memory_units >= ask.memory_units
            assert held[cards[0]].core >= ask.core


@given(nodes(), st.integers(1, 12), st.integers(1, 99))
@settings(max_examples=200)
def test_first_fit_takes_the_first_card_that_fits(free: FreeAmounts, memory: int, core: int) -> None:
    plan = plan_pod((ContainerRequest("c", ContainerRole.APP, RequestedAmounts(memory, core)),), MODEL)
    assert isinstance(plan, PodPlan)
    placed = place(plan, free, Policy.FIRST_FIT)
    fitting = [s.uuid for s, m, c in zip(free.slots, free.memory, free.core, strict=True) if m >= memory and c >= core]
    assert (placed.cards["c"] if isinstance(placed, Placement) else ()) == tuple(fitting[:1])


@given(containers(), st.booleans())
@settings(max_examples=100)
def test_planning_never_raises(some: tuple[ContainerRequest, ...], core_required: bool) -> None:  # noqa: FBT001
    assert isinstance(plan_pod(some, ResourceModel(core_required=core_required)), PodPlan | ImpossibleRequest)
