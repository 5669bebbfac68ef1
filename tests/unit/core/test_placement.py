"""Where pods go: the two real scenarios, whole cards, several containers, init containers, and exact refusals."""

import pytest
from property.cases import MODEL, box, one, plan_of, slots_of

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import (
    Placement,
    PlacementRefusal,
    PodPlan,
    Policy,
    Share,
    fits,
    footprint,
    held_of,
    parse_policy,
    place,
    place_container,
)
from edgegpu_core.request import ContainerRole, PlaceableRequest


class Node:
    """A node that books what it places."""

    def __init__(self, *units: int, policy: Policy = Policy.FIRST_FIT) -> None:
        self.free = FreeAmounts(slots_of(*units))
        self.policy = policy

    def put(self, plan: PodPlan) -> list[tuple[str, ...]]:
        placed = place(plan, self.free, self.policy)
        assert isinstance(placed, Placement), placed
        for share in placed.held:
            position = self.free.position(share.card)
            assert position is not None
            self.free.take(position, share.memory_units, share.core)
        return list(placed.cards.values())

    def refuse(self, plan: PodPlan) -> PlacementRefusal:
        refused = place(plan, self.free, self.policy)
        assert isinstance(refused, PlacementRefusal), refused
        assert not fits(plan, self.free)
        return refused


def test_one_card_of_94_units() -> None:
    node = Node(94)
    for units in (50, 40):
        node.put(one(units))
    assert node.refuse(one(10)) == PlacementRefusal("needs 10 vcuda-memory on one card; card 0 has 4 free", never=False)
    assert node.put(one(1)) == [("GPU-0",)]


def test_two_cards_of_29_units() -> None:
    node = Node(29, 29)
    assert [node.put(one(units)) for units in (4, 20, 20)] == [[("GPU-0",)], [("GPU-0",)], [("GPU-1",)]]
    assert node.refuse(one(20)) == PlacementRefusal(
        "needs 20 vcuda-memory on one card; card 0 has 5 free, card 1 has 9 free", never=False
    )


def test_the_words_of_the_design() -> None:
    free = FreeAmounts(slots_of(29, 29))
    free.take(0, 20, 1)
    free.take(1, 24, 1)
    refused = place(one(20), free, Policy.FIRST_FIT)
    assert refused == PlacementRefusal(
        "needs 20 vcuda-memory on one card; card 0 has 9 free, card 1 has 5 free", never=False
    )


@pytest.mark.parametrize(("second", "cards"), [(8, ["GPU-0", "GPU-0"]), (12, ["GPU-0", "GPU-1"])])
def test_two_and_two_gib_share_a_card_of_4_gib_and_two_and_three_do_not(second: int, cards: list[str]) -> None:
    node = Node(16, 16)
    assert [node.put(one(units))[0][0] for units in (8, second)] == cards


def test_what_fits_in_sum_only_never_fits() -> None:
    assert Node(29, 29).refuse(one(30)) == PlacementRefusal(
        "needs 30 vcuda-memory on one card; card 0 has 29 free, card 1 has 29 free", never=True
    )


def test_the_size_of_a_card_in_use_is_not_called_free() -> None:
    node = Node(29, 29)
    node.put(one(20))
    assert node.refuse(one(30)) == PlacementRefusal(
        "needs 30 vcuda-memory on one card; card 0: 29 units in all, card 1: 29 units in all", never=True
    )
    two = plan_of(box("main", 0, 300))
    assert node.refuse(two).reason == "needs 3 whole empty cards; card 0: 29 units in all, card 1: 29 units in all"


def test_80_and_30_hundredths_never_share() -> None:
    node = Node(29, 29)
    assert node.put(one(4, 80)) == [("GPU-0",)]
    assert node.put(one(4, 30)) == [("GPU-1",)]
    assert Node(29).put(one(4, 80)) == [("GPU-0",)]
    busy = Node(29)
    busy.put(one(4, 80))
    assert busy.refuse(one(4, 30)).reason == (
        "needs 4 vcuda-memory and 30 vcuda-core on one card; card 0 has 25 vcuda-memory and 20 vcuda-core free"
    )


def test_spread_puts_3_apps_on_3_of_7_cards() -> None:
    node = Node(*[29] * 7, policy=Policy.SPREAD)
    assert [node.put(one(4, 10)) for _ in range(3)] == [[("GPU-0",)], [("GPU-1",)], [("GPU-2",)]]


def test_spread_prefers_the_share_that_is_used_least_on_mixed_cards() -> None:
    node = Node(10, 100, policy=Policy.SPREAD)
    assert [node.put(one(5, 1))[0][0] for _ in range(4)] == ["GPU-0", "GPU-1", "GPU-1", "GPU-1"]


def test_best_fit_takes_the_fullest_card_that_fits() -> None:
    node = Node(29, 29, 16, policy=Policy.BEST_FIT)
    assert [node.put(one(units))[0][0] for units in (12, 4, 20, 9, 9)] == ["GPU-2", "GPU-2", "GPU-0", "GPU-0", "GPU-1"]


def test_policies_have_names() -> None:
    assert [parse_policy(policy.value) for policy in Policy] == list(Policy)
    with pytest.raises(ValueError, match="no placement policy 'random': choose one of first-fit, best-fit, spread"):
        parse_policy("random")


def test_a_whole_card_needs_an_empty_one_and_leaves_nothing() -> None:
    node = Node(29, 29)
    node.put(one(4))
    assert node.put(one(10, 100)) == [("GPU-1",)]
    assert node.free.memory == [25, 0]
    assert node.refuse(one(0, 100)).reason == (
        "needs one whole empty card; card 0 is in use (4 vcuda-memory, 1 vcuda-core), "
        "card 1 is in use (29 vcuda-memory, 100 vcuda-core)"
    )


def test_whole_cards_of_mixed_sizes_share_the_memory_evenly() -> None:
    assert Node(10, 29, 11).refuse(one(33, 300)) == PlacementRefusal(
        "needs 3 whole empty cards with 33 vcuda-memory; card 0 is empty (10 vcuda-memory), "
        "card 1 is empty (29 vcuda-memory), card 2 is empty (11 vcuda-memory)",
        never=True,
    )
    assert Node(10, 29, 11).put(one(32, 300)) == [("GPU-0", "GPU-1", "GPU-2")]
    assert Node(10, 29, 11).put(one(21, 200)) == [("GPU-0", "GPU-1")]
    assert Node(10, 29, 11).put(one(22, 200)) == [("GPU-1", "GPU-2")]
    assert Node(10, 29, 11).put(one(0, 200)) == [("GPU-0", "GPU-1")]


def test_many_small_cards_before_the_big_ones_do_not_hide_them() -> None:
    node = Node(*[10] * 12, *[11] * 4)
    [cards] = node.put(one(84, 800))
    assert set(cards) >= {"GPU-12", "GPU-13", "GPU-14", "GPU-15"}


def test_a_number_of_cards_out_of_all_reason_is_refused_at_once() -> None:
    assert Node(29).refuse(one(4, 10**17)) == PlacementRefusal(
        "needs 1000000000000000 whole empty cards with 4 vcuda-memory; card 0 is empty (29 vcuda-memory)", never=True
    )


def test_containers_of_a_pod_may_go_to_different_cards() -> None:
    plan = plan_of(box("a", 20, 10), box("b", 20, 10))
    placed = place(plan, FreeAmounts(slots_of(29, 29)), Policy.FIRST_FIT)
    assert placed == Placement({"a": ("GPU-0",), "b": ("GPU-1",)}, (Share("GPU-0", 20, 10), Share("GPU-1", 20, 10)))


def test_the_search_looks_behind_the_first_choice() -> None:
    plan = plan_of(box("small", 4, 10), box("big", 20, 10))
    placed = place(plan, FreeAmounts(slots_of(20, 10)), Policy.FIRST_FIT)
    assert isinstance(placed, Placement)
    assert placed.cards == {"small": ("GPU-1",), "big": ("GPU-0",)}


def test_a_refusal_names_the_container() -> None:
    plan = plan_of(box("a", 20, 10), box("b", 20, 10))
    assert Node(29).refuse(plan) == PlacementRefusal(
        "container b needs 20 vcuda-memory and 10 vcuda-core on one card; card 0 has 9 free", never=True
    )


def test_an_init_containers_units_are_reused() -> None:
    plan = plan_of(box("i", 20, 30, ContainerRole.INIT), box("a", 10, 50), box("b", 12, 10))
    placed = place(plan, FreeAmounts(slots_of(10, 29)), Policy.FIRST_FIT)
    assert placed == Placement(dict.fromkeys("iab", ("GPU-1",)), (Share("GPU-1", 22, 60),))
    assert Node(21, 21).refuse(plan) == PlacementRefusal(
        "with its init container needs 22 vcuda-memory and 60 vcuda-core on one card; "
        "card 0 has 21 free, card 1 has 21 free",
        never=True,
    )


def test_a_sidecar_keeps_what_it_takes_from_an_init_container() -> None:
    init_first = plan_of(box("i", 10, 10, ContainerRole.INIT), box("s", 4, 4, ContainerRole.SIDECAR), box("a", 10, 10))
    sidecar_first = plan_of(
        box("s", 4, 4, ContainerRole.SIDECAR), box("i", 10, 10, ContainerRole.INIT), box("a", 10, 10)
    )
    for plan in (init_first, sidecar_first):
        placed = place(plan, FreeAmounts(slots_of(29)), Policy.FIRST_FIT)
        assert isinstance(placed, Placement)
        assert placed.held == (Share("GPU-0", 14, 14),)


def test_core_over_a_card_behind_an_init_container_never_fits() -> None:
    plan = plan_of(box("i", 4, 60, ContainerRole.INIT), box("s", 4, 60, ContainerRole.SIDECAR), box("a", 4, 60))
    assert Node(29, 29).refuse(plan).never


def test_an_init_container_after_a_sidecar_needs_whole_cards_of_its_own_and_never_fits() -> None:
    plan = plan_of(
        box("i", 1, 200, ContainerRole.INIT),
        box("s", 1, 200, ContainerRole.SIDECAR),
        box("j", 1, 200, ContainerRole.INIT),
    )
    assert Node(29, 29, 29, 29).refuse(plan).never


def test_a_card_out_of_order_is_passed_over_and_said() -> None:
    sick = (CardCapacity("GPU-0", "0", 29, healthy=False), CardCapacity("GPU-1", "1", 29))
    placed = place(one(4), FreeAmounts(sick), Policy.FIRST_FIT)
    assert isinstance(placed, Placement)
    assert placed.cards == {"main": ("GPU-1",)}
    assert place(one(30), FreeAmounts(sick), Policy.FIRST_FIT) == PlacementRefusal(
        "needs 30 vcuda-memory on one card; card 0 is out of order, card 1 has 29 free", never=True
    )


def test_no_card_at_all() -> None:
    assert Node().refuse(one(4)).reason == "needs 4 vcuda-memory on one card; the node has no card"


def test_best_effort_core_goes_where_no_core_is_left() -> None:
    plan = plan_of(box("main", 4, 0), model=ResourceModel(core_required=False))
    free = FreeAmounts(slots_of(29))
    free.take(0, 4, 99)
    assert fits(plan, free)
    assert place_container(PlaceableRequest(1, 4, 0, whole=False), free, Policy.SPREAD) == (Share("GPU-0", 4, 0),)
    assert place_container(PlaceableRequest(1, 26, 0, whole=False), free, Policy.SPREAD) is None


def test_held_and_footprint_count_a_whole_card_whole() -> None:
    slots = slots_of(29, 10)
    assert held_of(PlaceableRequest(2, 4, 100, whole=True), ("GPU-0", "GPU-1"), slots) == (
        Share("GPU-0", 29, 100),
        Share("GPU-1", 10, 100),
    )
    assert held_of(PlaceableRequest(1, 4, 10, whole=False), ("GPU-0", "GPU-1"), slots) == (Share("GPU-0", 4, 10),)
    init = plan_of(box("i", 0, 100, ContainerRole.INIT), box("a", 4, 100))
    assert footprint(init, {"a": ("GPU-1",)}, slots) == (Share("GPU-1", 10, 100),)
    two = plan_of(box("a", 4, 10), box("b", 5, 20))
    assert footprint(two, {"a": ("GPU-1",), "b": ("GPU-1",)}, slots) == (Share("GPU-1", 9, 30),)
    assert footprint(two, {"b": ("GPU-0",)}, slots) == (Share("GPU-0", 5, 20),)


def test_the_model_of_a_plan_names_the_resources() -> None:
    model = ResourceModel(memory_resource="example.org/mem", core_resource="example.org/cores")
    refused = place(plan_of(box("main", 30, 10), model=model), FreeAmounts(slots_of(29)), Policy.FIRST_FIT)
    assert refused == PlacementRefusal("needs 30 mem and 10 cores on one card; card 0 has 29 free", never=True)
    assert MODEL.memory_resource == "baidu.com/vcuda-memory"
