"""What an installation promises for k3s 1.20 to 1.24: its schedulers take our file and ask our extender.

Real schedulers of these versions, a real API server; Node objects stand for the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from integration.extender_world import cards_of, node, pod, uuid
from lab.labrun import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schedulers.oldcluster import OldCluster

Json = dict[str, Any]
UNITS = 29


def add_node(cluster: OldCluster, name: str = "n", units: Sequence[int] = (UNITS, UNITS)) -> None:
    item = node(name, units)
    del item["metadata"]["uid"]
    offered = {**item["status"]["allocatable"], "cpu": "8", "memory": "16Gi", "pods": "110"}
    cluster.add({**item, "apiVersion": "v1", "kind": "Node", "status": {"allocatable": offered, "capacity": offered}})


def add_pod(cluster: OldCluster, name: str, units: int, *, priority: str = "low") -> None:
    item = pod(name, (units, 1))
    del item["metadata"]["uid"], item["status"], item["spec"]["priority"]
    item["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 600}
    for container in item["spec"]["containers"]:
        container["image"] = "busybox:lab"
        container["resources"]["requests"] = container["resources"]["limits"]
    cluster.add({**item, "apiVersion": "v1", "kind": "Pod"})


def card(item: Json) -> str:
    cards = cards_of(item)
    assert list(cards) == ["c0"], item["metadata"].get("annotations")
    return cards["c0"][0]


def leaving(cluster: OldCluster) -> dict[str, Json]:
    return {name: item for name, item in cluster.pods().items() if "deletionTimestamp" in item["metadata"]}


def test_each_pod_is_bound_with_its_card(cluster: OldCluster) -> None:
    add_node(cluster)
    places = []
    for name in ("a", "b", "c"):
        add_pod(cluster, name, 14)
        places.append(card(cluster.wait_bound(name)))
    assert places == [uuid("n", 0), uuid("n", 0), uuid("n", 1)]


def test_the_event_of_a_pod_without_room_has_the_numbers(cluster: OldCluster) -> None:
    add_node(cluster)
    for name in ("a", "b"):
        add_pod(cluster, name, 15)
        cluster.wait_bound(name)
    add_pod(cluster, "more", 20)
    cluster.wait_words("more", "needs 20 vcuda-memory on one card; card 0 has 14 free, card 1 has 14 free")
    assert not cluster.pod("more")["spec"].get("nodeName")


def test_the_fuller_node_is_taken(cluster: OldCluster) -> None:
    add_node(cluster, "n", (UNITS,))
    add_pod(cluster, "a", 5)
    cluster.wait_bound("a")
    add_node(cluster, "m", (UNITS,))
    for name in ("b", "c"):
        add_pod(cluster, name, 5)
        assert card(cluster.wait_bound(name)) == uuid("n", 0)


def test_no_pod_is_bound_while_the_extender_is_away(cluster: OldCluster) -> None:
    add_node(cluster)
    cluster.stop_extender()
    try:
        add_pod(cluster, "a", 5)
        cluster.wait_words("a", "connection refused")
        assert not cluster.pod("a")["spec"].get("nodeName")
    finally:
        cluster.start_extender()

    def bound() -> bool:
        cluster.touch("n")
        return bool(cluster.pod("a")["spec"].get("nodeName"))

    wait_until(bound, what="the pod is bound", every_s=1)
    assert card(cluster.pod("a")) == uuid("n", 0)


def test_pods_of_one_card_go_for_one_of_higher_priority(cluster: OldCluster) -> None:
    _four_low(cluster)
    add_pod(cluster, "high", 25, priority="high")
    victims = wait_until(lambda: _two(leaving(cluster)), what="two pods are evicted")
    assert len({card(item) for item in victims.values()}) == 1, victims
    for name in victims:
        cluster.remove(name)
    place = card(cluster.wait_bound("high"))
    assert place in {card(item) for item in victims.values()}
    assert leaving(cluster) == {}


def test_nobody_goes_where_no_eviction_gives_a_card(cluster: OldCluster) -> None:
    add_node(cluster)
    for name, units, priority in (("a", 15, "high"), ("b", 15, "high"), ("c", 10, "low"), ("d", 10, "low")):
        add_pod(cluster, name, units, priority=priority)
        cluster.wait_bound(name)
    add_pod(cluster, "more", 20, priority="high")
    cluster.wait_words("more", "Insufficient baidu.com/vcuda-memory")
    cluster.wait_log("preemption for pod")
    assert leaving(cluster) == {}
    assert not cluster.pod("more")["spec"].get("nodeName")


def _two(pods: dict[str, Json]) -> dict[str, Json] | None:
    """Return the pods once there are two: all that a card of `_four_low` has."""
    return pods if len(pods) == 2 else None


def _four_low(cluster: OldCluster) -> None:
    add_node(cluster)
    for name in ("a", "b", "c", "d"):
        add_pod(cluster, name, 10)
        cluster.wait_bound(name)
