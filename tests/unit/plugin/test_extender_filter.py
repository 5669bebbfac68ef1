import pytest
from integration.extender_world import MODEL, Json, node, plain_node, pod, uuid

from edgegpu_core.choices.pod_choice import AllowedChoices
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import pod_view
from edgegpu_core.reasons import ROOM_COMES
from edgegpu_plugin.extender.filter import FilterVerdict, filter_nodes
from edgegpu_plugin.extender.node_capacity import (
    NodeCapacity,
    Nomination,
    capacity_of,
    known_node,
    without_claimed,
)
from edgegpu_plugin.extender.verbs import rank


def rooms_of(nodes: list[Json], pods: list[Json]) -> dict[str, NodeCapacity]:
    views = [found for item in pods if (found := pod_view(item, MODEL)) is not None]
    known = [known_node(item, MODEL) for item in nodes]
    return {n.name: capacity_of(n, [p for p in views if p.node == n.name], (), MODEL) for n in known}


def verdict(asking: Json, nodes: list[Json], *pods: Json) -> FilterVerdict:
    found = pod_view(asking, MODEL)
    assert found is not None
    names = [item["metadata"]["name"] for item in nodes]
    return filter_nodes(found, names, rooms=rooms_of(nodes, list(pods)), model=MODEL)


def held(name: str, *units: int) -> dict[str, tuple[Share, ...]]:
    return {f"uid-{name}-{i}": (Share(uuid(name, i), count, 1),) for i, count in enumerate(units)}


def test_a_reason_names_each_card() -> None:
    found = verdict(pod("p", (20, 1)), [node("a", [29, 29], held=held("a", 20, 24)), node("b", [29])])
    assert found.fitting == ["b"]
    assert found.unresolvable == {"a": "needs 20 vcuda-memory on one card; card 0 has 9 free, card 1 has 5 free"}


def test_pods_of_lower_priority_in_the_way_are_named_where_the_sums_have_room() -> None:
    low = [pod(f"low{i}", (15, 1), node="a", cards={"c0": (uuid("a", i),)}, priority=1) for i in range(2)]
    words = "needs 20 vcuda-memory on one card; card 0 has 14 free, card 1 has 14 free"
    way = (
        "; in the way, of lower priority: default/low0; not evicted, since the node's sum has room: delete to make "
        "room on one card"
    )
    nodes = [node("a", [29, 29])]
    assert verdict(pod("p", (20, 1), priority=5), nodes, *low).unresolvable == {"a": words + way}
    assert verdict(pod("p", (20, 1), priority=1), nodes, *low).unresolvable == {"a": words}
    # The sums have no room: the scheduler sees that itself, and never asks filter.
    assert "in the way" not in verdict(pod("p", (29, 1), priority=5), nodes, *low).unresolvable["a"]
    # No eviction helps.
    assert (
        "in the way" not in verdict(pod("p", (20, 1), (9, 1), init=(20, 1), priority=5), nodes, *low).unresolvable["a"]
    )


def test_from_six_nodes_on_reasons_are_alike() -> None:
    nodes = [node(f"n{i}", [29, 29], held=held(f"n{i}", 10 + i, 20)) for i in range(6)]
    single = verdict(pod("p", (25, 1)), nodes)
    assert set(single.unresolvable.values()) == {"needs 25 vcuda-memory on one card; no card has that free"}
    several = verdict(pod("p", (1, 1), (25, 1)), nodes)
    assert set(several.unresolvable.values()) == {
        "container c1 needs 25 vcuda-memory on one card; no card has that free"
    }
    whole = verdict(pod("p", (0, 200)), nodes)
    assert set(whole.unresolvable.values()) == {"needs 2 whole empty cards; no card has that free"}


@pytest.mark.parametrize(
    ("ask", "words"),
    [((4, 0), "add baidu.com/vcuda-core"), ((0, 30), "add baidu.com/vcuda-memory"), ((4, 150), "ask 100 or 200")],
)
def test_what_can_never_be_placed_says_so_for_every_node(ask: tuple[int, int], words: str) -> None:
    found = verdict(pod("p", ask), [node("a", [29]), plain_node("b")])
    assert found.unresolvable.keys() == {"a", "b"}
    assert all(words in reason for reason in found.unresolvable.values())


def test_memory_alone_where_the_node_allows_it() -> None:
    nodes = [node("strict", [29]), node("loose", [29], core_required=False)]
    assert verdict(pod("p", (4, 0)), nodes).fitting == ["loose"]


def test_a_policy_that_there_is_not() -> None:
    found = verdict(pod("p", (4, 1), policy="tight"), [node("a", [29])])
    assert found.unresolvable["a"] == (
        "annotation edgegpu.io/policy: no placement policy 'tight': choose one of first-fit, best-fit, spread"
    )


def test_a_node_that_does_not_allow_what_the_pod_chooses() -> None:
    nodes = [
        node("holds", [29], allowed=AllowedChoices("limiter")),
        node("free", [29], allowed=AllowedChoices("limiter", ("none",))),
        node("older", [29]),
    ]
    found = verdict(pod("p", (4, 1), isolation="none"), nodes)
    assert found.fitting == ["free"]
    assert "add none to isolation.pods_may" in found.unresolvable["holds"]
    assert "upgrade edgegpu there" in found.unresolvable["older"]
    assert verdict(pod("p", (4, 1)), nodes).fitting == ["holds", "free", "older"]
    strong = verdict(pod("p", (4, 1), isolation="strong"), nodes)
    assert "there is no isolation 'strong' (this node allows: limiter)" in strong.unresolvable["holds"]


def test_nodes_that_cannot_be_judged() -> None:
    asking = pod_view(pod("p", (4, 1)), MODEL)
    assert asking is not None
    rooms = rooms_of([plain_node("plain"), node("stale", [29], allocatable=0)], [])
    found = filter_nodes(asking, ["plain", "stale", "unheard-of"], rooms=rooms, model=MODEL)
    assert found.unresolvable == {
        "plain": "has no edgegpu plugin (no card list published)",
        "stale": "inventory not current: its plugin reports 29 vcuda-memory, kubelet offers 0",
        "unheard-of": "is not known to edgegpu yet",
    }


def test_an_init_container_shares_its_card_with_the_others() -> None:
    asking = pod("p", (20, 1), (15, 1), init=(10, 1))
    assert verdict(asking, [node("a", [29, 29])]).unresolvable.keys() == {"a"}
    assert verdict(asking, [node("a", [35])]).fitting == ["a"]


def test_ranking_packs_by_default_and_spreads_on_demand() -> None:
    nodes = [node("empty", [29]), node("half", [29], held=held("half", 15)), node("gone", [29], allocatable=1)]
    rooms = rooms_of(nodes, [])
    names = [*rooms, "unheard-of"]
    packed = {score.host: score.score for score in rank(names, rooms, Policy.FIRST_FIT)}
    assert packed == {"empty": 0, "half": 5, "gone": 0, "unheard-of": 0}
    spread = {score.host: score.score for score in rank(names, rooms, Policy.SPREAD)}
    assert spread == {"empty": 10, "half": 5, "gone": 0, "unheard-of": 0}


@pytest.mark.parametrize("how", ["gone", "deleting"])
def test_nobody_is_in_the_way_where_a_pod_that_ends_makes_the_room(how: str) -> None:
    """As in a preemption: the victim has gone or is going, and kubelet still has its devices."""
    low = pod("low", (15, 1), node="a", cards={"c0": (uuid("a", 1),)}, priority=1)
    victim = pod("victim", (15, 1), node="a", cards={"c0": (uuid("a", 0),)}, priority=1)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    nodes = [node("a", [29, 29], held=held("a", 15) if how == "gone" else {})]
    pods = [low] if how == "gone" else [low, victim]
    found = verdict(pod("p", (20, 1), priority=5), nodes, *pods).unresolvable["a"]
    assert found == "needs 20 vcuda-memory on one card; card 0 has 14 free, card 1 has 14 free" + ROOM_COMES


def test_room_that_is_kept_for_another_pod_does_not_come() -> None:
    low = pod("low", (15, 1), node="a", cards={"c0": (uuid("a", 1),)}, priority=1)
    asking, above = (pod_view(pod(name, (20, 1), priority=5), MODEL) for name in ("p", "above"))
    assert asking is not None
    assert above is not None
    room = without_claimed(rooms_of([node("a", [29, 29])], [low])["a"], [Nomination(above, frozenset())])
    found = filter_nodes(asking, ["a"], rooms={"a": room}, model=MODEL).unresolvable["a"]
    assert "in the way, of lower priority: default/low;" in found
