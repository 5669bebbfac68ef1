"""Pods that no node has taken: the reason in numbers, also where the scheduler says no more than Insufficient."""

from collections import UserDict
from typing import Any

from integration.extender_world import MODEL, Json, node, plain_node, pod, uuid

from edgegpu_core.placement import Share
from edgegpu_core.podview import pod_view
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.node_capacity import NodeCapacity, known_node
from edgegpu_plugin.extender.pending import MOST_PODS, nodes_part, pending_part, reasons_of

INSUFFICIENT = "0/1 nodes are available: 1 Insufficient baidu.com/vcuda-memory."


def cluster(nodes: list[Json], *pods: Json) -> ClusterState:
    state = ClusterState(MODEL)
    for item in nodes:
        state.change_node(item["metadata"]["uid"], known_node(item, MODEL))
    for item in pods:
        found = pod_view(item, MODEL)
        assert found is not None
        state.change_pod(found.uid, found)
    return state


def unscheduled(item: Json, message: str = INSUFFICIENT, reason: str = "Unschedulable") -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return item | {"status": {"phase": "Pending", "conditions": [condition]}}


def rows(state: ClusterState) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pending_part(state, MODEL)["pending"]
    return found


def held(name: str, *units: int) -> dict[str, tuple[Share, ...]]:
    return {f"uid-{name}-{i}": (Share(uuid(name, i), count, 1),) for i, count in enumerate(units)}


def test_insufficient_comes_with_the_numbers_of_each_card() -> None:
    state = cluster([node("a", [29, 29], held=held("a", 24, 20))], unscheduled(pod("p", (20, 30))))
    (row,) = rows(state)
    numbers = "card 0 has 5 vcuda-memory and 99 vcuda-core free, card 1 has 9 vcuda-memory and 99 vcuda-core free"
    assert row["reason"].startswith("needs 20 vcuda-memory and 30 vcuda-core on one card; ")
    assert row["reason"].endswith(("card 0 has 5 free, card 1 has 9 free", numbers))
    assert (row["state"], row["phase"], row["cards"]) == ("pending", "Pending", [])
    assert (row["memory_units"], row["core"], row["container"]) == (20, 30, "c0")


def test_pods_that_have_a_node_or_have_ended_are_not_pending() -> None:
    gone = pod("gone", (4, 1))
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ended = pod("ended", (4, 1)) | {"status": {"phase": "Failed"}}
    assert rows(cluster([node("a", [29])], pod("here", (4, 1), node="a"), gone, ended)) == []


def test_each_node_has_its_numbers_and_a_node_without_cards_says_nothing() -> None:
    nodes = [node("a", [29], held=held("a", 20)), node("b", [12]), plain_node("c")]
    (row,) = rows(cluster(nodes, unscheduled(pod("p", (20, 1)))))
    assert row["reason"] == (
        "a: needs 20 vcuda-memory on one card; card 0 has 9 free; "
        "b: needs 20 vcuda-memory on one card; card 0 has 12 free"
    )


def test_of_many_nodes_the_one_with_most_room_has_its_numbers() -> None:
    nodes = [node(f"n{i}", [29], held=held(f"n{i}", 20 - i)) for i in range(8)]
    (row,) = rows(cluster(nodes, unscheduled(pod("p", (20, 1)))))
    assert (
        row["reason"]
        == "needs 20 vcuda-memory on one card; no card has that free; most is free on n7: card 0 has 16 free"
    )


def test_a_pod_that_has_room_is_held_by_something_else_in_the_schedulers_words() -> None:
    taint = "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: asr}."
    (row,) = rows(cluster([node("a", [29])], unscheduled(pod("p", (20, 1)), taint)))
    assert row["reason"] == f"has room on a; the scheduler said last: {taint}"
    (fresh,) = rows(cluster([node("a", [29])], pod("p", (20, 1))))
    assert fresh["reason"] == "has room on a; the scheduler has not said anything about it yet"
    (gated,) = rows(cluster([node("a", [29])], unscheduled(pod("p", (20, 1)), "", "SchedulingGated")))
    assert gated["reason"] == "has room on a; the scheduler said last: SchedulingGated"


def test_what_can_never_be_placed_says_what_to_ask_instead() -> None:
    (row,) = rows(cluster([node("a", [29])], unscheduled(pod("p", (20, 0)))))
    assert "add baidu.com/vcuda-core" in row["reason"]
    (alone,) = rows(cluster([plain_node("a")], unscheduled(pod("p", (20, 1)))))
    assert alone["reason"] == "no node of this cluster offers cards"


def test_a_flood_of_pods_is_counted_and_not_judged_one_by_one() -> None:
    many = [unscheduled(pod(f"p{i:03}", (30, 1))) for i in range(MOST_PODS + 7)]
    said = pending_part(cluster([node("a", [29])], *many), MODEL)
    assert (len(said["pending"]), said["pending_more"]) == (MOST_PODS, 7)


class _Asked(UserDict[str, NodeCapacity]):
    """Counts how often a node's room was asked for."""

    times = 0

    def __getitem__(self, key: str) -> NodeCapacity:
        self.times += 1
        return super().__getitem__(key)


def test_pods_that_ask_for_the_same_are_judged_once() -> None:
    unequal = [
        unscheduled(pod("other", (21, 1))),
        unscheduled(pod("two", (20, 1), (20, 1))),
        unscheduled(pod("higher", (20, 1), priority=5)),
        unscheduled(pod("spread", (20, 1), policy="spread")),
        unscheduled(pod("none", (20, 1), policy="none")),
    ]
    equal = [unscheduled(pod(f"p{i}", (20, 1)), f"said {i}") for i in range(9)]
    state = cluster([node("a", [29], held=held("a", 20))], *equal, *unequal)
    rooms = _Asked(state.capacities(["a"]))
    waiting = [one for one in state.pods() if not one.node]
    told = reasons_of(waiting, rooms, MODEL)
    assert rooms.times == len(unequal)  # one that is never judged, for its policy, and one for all that are equal
    assert told == [reasons_of([one], rooms, MODEL)[0] for one in waiting]
    free = state.capacities(["a"]) | cluster([node("b", [29])]).capacities(["b"])
    alike = [one for one in waiting if one.name.startswith("p")]
    assert reasons_of(alike, free, MODEL) == [
        f"has room on b; the scheduler said last: {one.unscheduled}" for one in alike
    ]
    assert len({one.unscheduled for one in alike}) == len(equal)


def test_nodes_are_listed_where_there_are_several() -> None:
    assert nodes_part(cluster([node("a", [29]), plain_node("b")])) == []
    both = cluster([node("a", [29, 29], held=held("a", 20)), node("b", [94])])
    assert nodes_part(both) == [
        {"name": "a", "cards": 2, "units": 58, "units_free": 38},
        {"name": "b", "cards": 1, "units": 94, "units_free": 94},
    ]


def test_pods_on_a_card_that_is_not_offered_are_named_where_they_fill_the_scheduler_sum() -> None:
    """The scheduler counts what every pod of the node asks for, and kubelet offers nothing of an excluded card."""
    beside = [pod(f"old{i}", (10, 1), node="a", phase="Running") for i in range(2)]
    on_card_9: dict[str, tuple[Share, ...]] = {f"uid-old{i}": (Share("GPU-a-9", 10, 1),) for i in range(2)}
    small, large = unscheduled(pod("small", (9, 1))), unscheduled(pod("large", (20, 1)))
    found = {
        row["pod"]: row["reason"] for row in rows(cluster([node("a", [29], held=on_card_9)], *beside, small, large))
    }
    words = (
        "has room on a; the scheduler counts pods on cards that are excluded or gone against the others: "
        "default/old0, default/old1; delete them to make room; the scheduler said last: " + INSUFFICIENT
    )
    assert found == {"large": words, "small": f"has room on a; the scheduler said last: {INSUFFICIENT}"}
