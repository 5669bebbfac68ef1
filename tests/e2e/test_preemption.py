"""A pod of higher priority on a real scheduler: who is evicted for it, and that nobody is for nothing."""

import json
from collections.abc import Iterator

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s
from e2e.manifests import Manifest, container, deployment, pod, pod_spec
from e2e.plugin_node import cards
from integration.extender_world import cards_of
from lab.labkit import LabError, wait_until

ROUNDS = 3
PRIORITIES = {"edgegpu-low": 1, "edgegpu-high": 1000}


@pytest.fixture(scope="module", autouse=True)
def two_cards(k3s: K3s) -> Iterator[None]:
    insert_cards(k3s, {SERVER: cards(7611, 7611)})
    for name, value in PRIORITIES.items():
        metadata = {"name": name}
        k3s.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value})
    yield
    k3s.kubectl("delete", "priorityclass", *PRIORITIES)


def spec(memory: int, priority: str) -> Manifest:
    return pod_spec(container(memory=memory, core=1), priorityClassName=f"edgegpu-{priority}")


def low_pods(k3s: K3s, namespace: str, *, phase: str, count: int) -> dict[str, Manifest]:
    """Wait until so many pods of the app `low` are in a phase, those that are on their way out left aside; by UID."""

    def probe() -> dict[str, Manifest]:
        live = [item for item in k3s.pods(namespace, "low") if "deletionTimestamp" not in item["metadata"]]
        found = {item["metadata"]["uid"]: item for item in live if item["status"]["phase"] == phase}
        return found if len(found) == count else {}

    return wait_until(probe, what=f"{count} low pods are {phase}", every_s=0.3)


def wait_words(k3s: K3s, item: Manifest, *either: str) -> None:
    """Wait until a pod's events say one of these."""

    def probe() -> bool:
        said = k3s.events(item["metadata"]["namespace"], item)
        if not any(words in said for words in either):
            raise LabError(f"they say: {said[-600:]}")
        return True

    wait_until(probe, what=f"a pod's events say one of {either}", every_s=0.3)


def test_two_pods_of_one_card_go_for_one_and_nobody_else(k3s: K3s, namespace: str) -> None:
    k3s.apply(deployment("low", spec(10, "low"), namespace=namespace, replicas=4))
    for number in range(ROUNDS):
        before = low_pods(k3s, namespace, phase="Running", count=4)
        high = f"high{number}"
        k3s.apply(pod(high, spec(25, "high"), namespace=namespace))
        k3s.wait_phase(namespace, high, "Running")
        after = low_pods(k3s, namespace, phase="Running", count=2)
        assert after.keys() < before.keys()
        assert len({json.dumps(cards_of(item)) for item in after.values()}) == 1
        wait_consistent(k3s)
        # Their successors are tried, find no card, and evict nobody.
        for waits in low_pods(k3s, namespace, phase="Pending", count=2).values():
            wait_words(k3s, waits, "card 0 has 4 free, card 1 has 9 free", "card 0 has 9 free, card 1 has 4 free")
        assert low_pods(k3s, namespace, phase="Running", count=2).keys() == after.keys()
        k3s.wait_phase(namespace, high, "Running")
        k3s.kubectl("delete", "pod", high, "-n", namespace, "--now")


def test_where_the_sum_has_room_nobody_goes_and_the_event_names_who_is_in_the_way(k3s: K3s, namespace: str) -> None:
    for name in ("a", "b"):
        k3s.apply(pod(name, spec(15, "low"), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    k3s.apply(pod("high", spec(20, "high"), namespace=namespace))
    said = k3s.wait_event(namespace, "high", "needs 20 vcuda-memory on one card")
    assert f"in the way, of lower priority: {namespace}/" in said
    assert "not evicted, since the node's sum has room" in said
    for name in ("a", "b"):
        kept = k3s.the_pod(namespace, name)
        assert kept["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in kept["metadata"]


def test_where_no_eviction_gives_a_card_nobody_goes(k3s: K3s, namespace: str) -> None:
    for name, memory, priority in (("a", 15, "high"), ("b", 15, "high"), ("c", 10, "low"), ("d", 10, "low")):
        k3s.apply(pod(name, spec(memory, priority), namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    k3s.apply(pod("more", spec(20, "high"), namespace=namespace))
    asked = f"preemption for pod {namespace}/more: {{}}"
    wait_until(lambda: asked in k3s.nodes[SERVER].plugin_log(), what="the scheduler asks who goes, and is told nobody")
    k3s.wait_event(namespace, "more", "Insufficient baidu.com/vcuda-memory")
    for name in ("a", "b", "c", "d"):
        kept = k3s.the_pod(namespace, name)
        assert kept["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in kept["metadata"]
