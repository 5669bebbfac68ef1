"""Admissions in every order that a kubelet may choose, with a late watch, init containers and restarts: all on plan."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from contract.bed import EmbeddedBed, main, phase, pod

from edgegpu_core.deviceid import card_of
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import pod_view
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import make_card
from edgegpu_sim.node import NodeSpec

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
UNITS = (29, 94, 16)
PODS = 12
START_S = 60.0


def some_pod(name: str, order: random.Random) -> Json:
    """A pod of some kind: one container or two, with or without GPU init containers, amounts that often coincide."""

    def container(number: int) -> Json:
        return main({MEMORY: order.choice((1, 2, 2, 5)), CORE: order.choice((1, 1, 3))}, name=f"c{number}")

    made = pod(name)
    made["spec"]["containers"] = [container(number) for number in range(order.choice((1, 1, 2)))]
    if order.random() < 0.4:
        first = main({MEMORY: order.choice((1, 3)), CORE: order.choice((1, 2))}, name="first", command=["true"])
        made["spec"]["initContainers"] = [first]
    return made


def check(bed: EmbeddedBed, names: list[str]) -> dict[str, dict[str, str]]:
    """Every container's ids are as many as asked, on one card, the annotated one; no card holds more than it has."""
    entries = bed.checkpoint("box")
    found: dict[str, dict[str, str]] = {}
    held: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        view = pod_view(bed.get("Pod", name) or {}, ResourceModel())
        assert view is not None
        assert view.cards is not None
        for container in view.containers:
            ids = [i for e in entries if (e.pod_uid, e.container) == (view.uid, container.name) for i in e.device_ids]
            request = container.request
            assert (sum("::m" in i for i in ids), sum("::c" in i for i in ids)) == (request.memory_units, request.core)
            cards = {card_of(i) for i in ids}
            assert cards == set(view.cards[container.name]), f"{name}/{container.name}"
            found.setdefault(name, {})[container.name] = cards.pop()
            for text in ids:
                held[text].add(name)
    assert all(len(owners) == 1 for owners in held.values())
    return found


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_order_every_container_gets_the_card_that_was_meant(seed: int, simdriver_build: Path) -> None:
    assert simdriver_build.is_dir()
    order = random.Random(seed)
    cards = [make_card(index, f"card {index}", units * 256) for index, units in enumerate(UNITS)]
    with EmbeddedCluster([NodeSpec(name="box", cards=cards)], seed=seed) as cluster:
        cluster.api.settings.watch_delay_s["pods"] = order.choice((0.0, 0.2, 1.0))
        cluster.start_plugin("box")
        bed = EmbeddedBed(cluster)
        names = [f"p{number}" for number in range(PODS)]

        def offered() -> bool:
            node = bed.get("Node", "box") or {}
            return bool(node.get("status", {}).get("allocatable", {}).get(MEMORY) == str(sum(UNITS)))

        bed.wait(offered, what="all units", timeout_s=START_S)
        for name in names:
            bed.apply(some_pod(name, order))
        bed.wait(lambda: all(phase(bed, name) == "Running" for name in names), what="all run", timeout_s=START_S)
        before = bed.wait(lambda: settled(bed, names), what="annotations as booked", timeout_s=START_S)
        assert not [p for p in bed.pods() if p["status"].get("reason")]
        bed.restart_kubelet("box")
        cluster.kill_plugin("box")
        cluster.start_plugin("box")
        bed.wait(offered, what="all units again", timeout_s=START_S)
        assert bed.wait(lambda: settled(bed, names), what="as before", timeout_s=START_S) == before


def settled(bed: EmbeddedBed, names: list[str]) -> dict[str, dict[str, str]]:
    """What `check` finds, once annotations that needed a correction have got it."""
    try:
        return check(bed, names)
    except AssertionError:
        return {}
