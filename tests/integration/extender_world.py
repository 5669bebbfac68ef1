"""Nodes and pods as the API shows them, for tests of the extender."""

import json
from collections.abc import Sequence
from typing import Any

from edgegpu_core.choices.pod_choice import ISOLATION_ANNOTATION, AllowedChoices
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, write_report
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import CARDS_ANNOTATION, POLICY_ANNOTATION, write_cards

Json = dict[str, Any]

MODEL = ResourceModel()


def uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def node(
    name: str,
    units: Sequence[int],
    *,
    held: dict[str, tuple[Share, ...]] | None = None,
    waiting: Sequence[str] = (),
    policy: Policy = Policy.FIRST_FIT,
    allocatable: int | None = None,
    core_required: bool = True,
    allowed: AllowedChoices | None = None,
) -> Json:
    """Return a node with cards of so many units."""
    report = NodeReport(
        boot="b",
        generation=1,
        time="2026-01-01T00:00:00Z",
        policy=policy,
        unit_mib=256,
        core_required=core_required,
        slots=tuple(CardCapacity(uuid(name, i), str(i), count) for i, count in enumerate(units)),
        held=held or {},
        waiting=frozenset(waiting),
        allowed=allowed,
    )
    offered = sum(units) if allocatable is None else allocatable
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {REPORT_ANNOTATION: write_report(report)}},
        "status": {"allocatable": {MODEL.memory_resource: str(offered), MODEL.core_resource: str(100 * len(units))}},
    }


def plain_node(name: str) -> Json:
    """Return a node without a plugin."""
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"allocatable": {"cpu": "4"}}}


def pod(
    name: str,
    *asks: tuple[int, int],
    init: tuple[int, int] | None = None,
    node: str = "",
    cards: dict[str, tuple[str, ...]] | None = None,
    phase: str = "Pending",
    priority: int = 0,
    policy: str | None = None,
    isolation: str = "",
) -> Json:
    """Return a pod whose containers c0, c1 … ask for (memory units, core)."""
    annotations = {} if policy is None else {POLICY_ANNOTATION: policy}
    if isolation:
        annotations[ISOLATION_ANNOTATION] = isolation
    if cards is not None:
        annotations[CARDS_ANNOTATION] = write_cards(f"uid-{name}", node, cards)
    spec: Json = {"containers": [_container(f"c{i}", ask) for i, ask in enumerate(asks)], "priority": priority}
    if init is not None:
        spec["initContainers"] = [_container("init", init)]
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "annotations": annotations},
        "spec": spec,
        "status": {"phase": phase},
    }


def cards_of(item: Json) -> dict[str, list[str]]:
    """Return the cards that a pod's annotation names, by container."""
    text = (item["metadata"].get("annotations") or {}).get(CARDS_ANNOTATION)
    cards: dict[str, list[str]] = json.loads(text)["c"] if text else {}
    return cards


def _container(name: str, ask: tuple[int, int]) -> Json:
    memory, core = ask
    limits = {MODEL.memory_resource: str(memory), MODEL.core_resource: str(core)}
    return {"name": name, "resources": {"limits": {key: value for key, value in limits.items() if value != "0"}}}
