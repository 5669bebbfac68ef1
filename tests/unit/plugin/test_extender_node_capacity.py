import pytest
from integration.extender_world import MODEL, Json, node, plain_node, pod, uuid

from edgegpu_core.placement import Share
from edgegpu_core.podview import PodView, pod_view
from edgegpu_plugin.extender.assumed import Assumption
from edgegpu_plugin.extender.node_capacity import NodeCapacity, capacity_of, known_node


def view(item: Json) -> PodView:
    found = pod_view(item, MODEL)
    assert found is not None
    return found


def room(item: Json, *pods: Json, assumed: tuple[Assumption, ...] = ()) -> NodeCapacity:
    return capacity_of(known_node(item, MODEL), [view(p) for p in pods], assumed, MODEL)


def on_card(name: str, ask: tuple[int, int], card: int, *, phase: str = "Pending") -> Json:
    return pod(name, ask, node="n", cards={"c0": (uuid("n", card),)}, phase=phase)


def assumption(name: str, ask: tuple[int, int], card: int) -> Assumption:
    return Assumption(view(on_card(name, ask, card)), (Share(uuid("n", card), *ask),), 0.0)


def test_a_pods_annotation_counts_until_the_report_knows_better() -> None:
    bound = on_card("a", (4, 10), 1)
    assert room(node("n", [29, 29]), bound).free.memory == [29, 25]
    swapped = node("n", [29, 29], held={"uid-a": (Share(uuid("n", 0), 4, 10),)})
    assert room(swapped, bound).free.memory == [25, 29]
    assert room(swapped, bound).free.core == [90, 100]


def test_a_whole_card_takes_all_of_its_units() -> None:
    assert room(node("n", [29, 29]), on_card("a", (4, 100), 0)).free.memory == [0, 29]


def test_an_annotation_that_was_copied_from_another_pod_is_no_promise() -> None:
    copied = on_card("a", (4, 10), 1)
    copied["metadata"]["uid"] = "uid-b"
    assert room(node("n", [29, 29]), copied).free.memory == [25, 29]


def test_a_pod_that_others_bound_is_guessed_by_first_fit_after_all_that_is_known() -> None:
    unknown = pod("u", (20, 1), node="n")
    assert room(node("n", [29, 29]), unknown, on_card("a", (10, 1), 0)).free.memory == [19, 9]
    assert room(node("n", [9]), unknown).free.memory == [9]


def test_an_ended_pod_is_free_unless_kubelet_has_not_let_go() -> None:
    ended = on_card("a", (4, 10), 0, phase="Succeeded")
    assert room(node("n", [29]), ended).free.memory == [29]
    assert room(node("n", [29], held={"uid-a": (Share(uuid("n", 0), 4, 10),)}), ended).free.memory == [25]


def test_a_pod_that_is_gone_from_the_api_holds_its_share_while_the_report_says_so() -> None:
    assert room(node("n", [29], held={"uid-gone": (Share(uuid("n", 0), 4, 10),)})).free.memory == [25]


def test_an_assumed_pod_counts_once() -> None:
    assumed = assumption("a", (4, 10), 0)
    assert room(node("n", [29]), assumed=(assumed,)).free.memory == [25]
    assert room(node("n", [29]), on_card("a", (4, 10), 0), assumed=(assumed,)).free.memory == [25]
    assert room(node("n", [29]), pod("a", (4, 10), node="n"), assumed=(assumed,)).free.memory == [25]


def test_an_inventory_that_differs_from_allocatable_is_not_current() -> None:
    assert room(node("n", [29, 29])).problem == ""
    problem = room(node("n", [29, 29], allocatable=29)).problem
    assert problem == "inventory not current: its plugin reports 58 vcuda-memory, kubelet offers 29"
    assert room(plain_node("n")).problem == "has no edgegpu plugin (no card list published)"


def test_round_thousands_are_written_with_a_suffix() -> None:
    big = node("n", [1000, 1000])
    big["status"]["allocatable"][MODEL.memory_resource] = "2k"
    assert room(big).problem == ""


def test_the_lowest_priority_is_that_of_pods_that_run() -> None:
    pods = [
        pod("a", (4, 1), node="n", priority=5),
        pod("b", (4, 1), node="n", priority=9),
        pod("c", (4, 1), node="n", priority=-1, phase="Failed"),
    ]
    assert room(node("n", [29]), *pods).lowest_priority == 5
    assert room(node("n", [29])).lowest_priority is None


@pytest.mark.parametrize(("asks", "level"), [([], 0), ([(1, 1)], 1), ([(29, 1)], 5), ([(29, 1), (29, 1)], 10)])
def test_the_level_keeps_empty_and_full_apart_from_all_between(asks: list[tuple[int, int]], level: int) -> None:
    pods = [pod(f"p{i}", ask, node="n") for i, ask in enumerate(asks)]
    assert room(node("n", [29, 29]), *pods).level == level
