"""What is told of a node, and what of it is ours."""

from __future__ import annotations

from typing import Any

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import NodeReport, write_report
from edgegpu_core.placement import Policy
from edgegpu_installer.cluster.nodes import NodeFacts, facts_of, lacking_extender, lacking_plugin, marks_of

MODEL = ResourceModel()
MEMORY, CORE = MODEL.memory_resource, MODEL.core_resource


def a_node(
    name: str = "box",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    amounts: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "status": {
            "capacity": {"cpu": "8", **(amounts or {})},
            "allocatable": {"cpu": "8", **(amounts or {})},
        },
    }


def a_report(*units: int) -> str:
    slots = tuple(CardCapacity(f"GPU-{i}", str(i), count) for i, count in enumerate(units))
    return write_report(
        NodeReport(
            boot="b",
            generation=1,
            time="t",
            policy=Policy.FIRST_FIT,
            unit_mib=256,
            core_required=True,
            slots=slots,
            held={},
        )
    )


def test_an_agent_without_anything() -> None:
    facts = facts_of(a_node(), MODEL)
    assert facts == NodeFacts(name="box", is_server=False, labelled=False)
    assert facts.role == "agent"
    assert not facts.seems_to_have_cards


def test_a_server_with_edgegpu() -> None:
    node = a_node(
        labels={"node-role.kubernetes.io/control-plane": "true", "edgegpu.io/gpu": "true"},
        annotations={"edgegpu.io/cards-of-node": a_report(29, 94), "edgegpu.io/extender": "0.1.0"},
        amounts={MEMORY: "123", CORE: "200"},
    )
    facts = facts_of(node, MODEL)
    assert (facts.role, facts.labelled, facts.extender) == ("server", True, "0.1.0")
    assert (facts.cards, facts.memory_units) == (2, 123)


def test_a_large_amount_is_read_as_the_api_writes_it() -> None:
    assert facts_of(a_node(amounts={MEMORY: "2k"}), MODEL).memory_units == 2000


def test_signs_of_others_are_told() -> None:
    assert facts_of(a_node(labels={"nvidia.com/gpu.present": "true"}), MODEL).seems_to_have_cards
    assert facts_of(a_node(amounts={"nvidia.com/gpu": "2"}), MODEL).signs == ("nvidia.com/gpu",)
    assert not facts_of(a_node(amounts={"nvidia.com/gpu": "0"}), MODEL).seems_to_have_cards


def test_a_status_that_is_not_there_yet() -> None:
    facts = facts_of({"metadata": {"name": "new"}}, MODEL)
    assert facts.memory_units == 0


def test_who_lacks_what() -> None:
    nodes = (
        NodeFacts(name="s1", is_server=True, labelled=True, cards=1, extender="0.1.0"),
        NodeFacts(name="s2", is_server=True, labelled=False, extender="0.0.9"),
        NodeFacts(name="a1", is_server=False, labelled=True),
        NodeFacts(name="a2", is_server=False, labelled=False),
    )
    assert lacking_plugin(nodes) == ("a1",)
    assert lacking_extender(nodes, "0.1.0") == ("s2",)


def test_marks_are_those_of_our_domain() -> None:
    node = a_node(
        labels={"edgegpu.io/gpu": "true", "edgegpu.iox/gpu": "x", "team": "a"},
        annotations={"edgegpu.io/extender": "1", "other": "x"},
    )
    marks = marks_of(node)
    assert dict(marks.labels) == {"edgegpu.io/gpu": "true"}
    assert dict(marks.annotations) == {"edgegpu.io/extender": "1"}
    assert marks
    assert not marks_of(a_node())
