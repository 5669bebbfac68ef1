"""The two scenarios of the field, on a real k3s: three services on one card, and services over two cards."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.conftest import SERVER, insert_cards
from e2e.consistency import wait_consistent
from e2e.k3s import K3s
from e2e.manifests import MEMORY, container, deployment, pod_spec
from e2e.plugin_node import cards
from lab.labkit import wait_until

from edgegpu_core.podview import CARDS_ANNOTATION, read_cards

pytestmark = pytest.mark.daily

GPU_LINE = re.compile(r"^GPU 0: .+ \(UUID: (GPU-[0-9a-f-]{36})\)$")


def service(name: str, memory: int, *, namespace: str, core: int = 1) -> dict[str, Any]:
    return deployment(name, pod_spec(container(memory=memory, core=core)), namespace=namespace)


def the_card(k3s: K3s, namespace: str, app: str) -> str:
    """Return the one card that a running service sees, after checking that every record names it."""
    pod = k3s.wait_phase(namespace, app, "Running")
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    lines = k3s.sees(namespace, name)
    assert len(lines) == 1, lines
    match = GPU_LINE.match(lines[0])
    assert match, lines
    card = match.group(1)
    annotated = read_cards(pod["metadata"]["annotations"][CARDS_ANNOTATION], uid, SERVER)
    assert annotated == {"main": (card,)}
    node = k3s.nodes[SERVER]
    rows = [row for row in node.status()["pods"] if row["uid"] == uid]
    assert [[c["uuid"] for c in row["cards"]] for row in rows] == [[card]]
    told = [row for row in node.edgegpu("pods", "-n", namespace)["pods"] if row["pod"] == name]
    assert [[c["uuid"] for c in row["cards"]] for row in told] == [[card]]
    listed = {i.partition("::")[0] for one in node.pod_resources() if one.pod == name for i in one.ids}
    assert listed == {card}
    return card


@pytest.fixture
def services(k3s: K3s) -> Iterator[str]:
    """Yield the namespace of the field's services, emptied afterwards also when the test fails."""
    yield "baetyl-edge"
    k3s.clear("baetyl-edge")


def test_three_services_share_one_card_and_a_fourth_unit_too_many_waits(k3s: K3s, services: str) -> None:
    insert_cards(k3s, {SERVER: cards(24259)})
    sizes = {"fifty": 50, "forty": 40, "one": 1}
    k3s.apply(*(service(name, size, namespace=services) for name, size in sizes.items()))
    for name in sizes:
        the_card(k3s, services, name)
    old = k3s.the_pod(services, "one")["metadata"]["name"]

    k3s.apply(service("one", 10, namespace=services))
    said = k3s.wait_event(services, "one", f"Insufficient {MEMORY}")
    new = k3s.wait_phase(services, "one", "Pending")["metadata"]["name"]
    assert new != old
    # A Deployment makes the new pod as soon as the old one has ended. Its object may still be there (seen on 1.37).
    wait_until(lambda: old not in {pod["metadata"]["name"] for pod in k3s.pods(services, "one")}, what=f"{old} is gone")
    assert "UnexpectedAdmissionError" not in said
    # The unit of the old pod is free once the plugin has seen its end. Of the other node something else is said.
    numbers = "needs 10 vcuda-memory on one card; card 0 has 4 free"
    wait_until(lambda: numbers in _pending_reason(k3s, services, new), what=f"{new} waits: {numbers}")

    k3s.apply(service("one", 1, namespace=services))
    the_card(k3s, services, "one")
    wait_consistent(k3s)


def _pending_reason(k3s: K3s, namespace: str, name: str) -> str:
    """Return why a pod waits, with numbers, by `edgegpu pods` and `status` (the scheduler says only Insufficient)."""
    node = k3s.nodes[SERVER]
    told = next((row for row in node.edgegpu("pods", "-n", namespace)["pods"] if row["pod"] == name), None)
    row = next((row for row in node.edgegpu("status")["pending"] if row["pod"] == name), None)
    if told is None or row is None:
        return "not told yet"
    if row["reason"] != told["reason"]:
        return f"pods and status differ: {told['reason']!r}, {row['reason']!r}"
    assert told["state"] == "pending"
    reason: str = told["reason"]
    return reason


@pytest.mark.parametrize(
    ("mib", "sizes", "together"),
    [
        (7611, {"a": 4, "b": 20, "c": 20}, {("a", "b"): True, ("b", "c"): False}),
        (4096, {"a": 8, "b": 8}, {("a", "b"): True}),
        (4096, {"a": 8, "b": 12}, {("a", "b"): False}),
    ],
)
def test_services_over_two_cards(
    k3s: K3s, namespace: str, mib: int, sizes: dict[str, int], together: dict[tuple[str, str], bool]
) -> None:
    insert_cards(k3s, {SERVER: cards(mib, mib)})
    for name, size in sizes.items():  # first fit: the order in which they come decides
        k3s.apply(service(name, size, namespace=namespace))
        k3s.wait_phase(namespace, name, "Running")
    seen = {name: the_card(k3s, namespace, name) for name in sizes}
    for (left, right), same in together.items():
        assert (seen[left] == seen[right]) is same, seen
    wait_consistent(k3s)
