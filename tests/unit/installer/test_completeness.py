"""What of a cluster's installation is still missing, and that nothing is said when nothing is."""

from typing import Any

from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, write_report
from edgegpu_core.placement import Policy
from edgegpu_installer.cluster.nodes import completeness

REPORT = write_report(
    NodeReport(
        boot="b",
        generation=1,
        time="2026-01-01T00:00:00Z",
        policy=Policy.FIRST_FIT,
        unit_mib=256,
        core_required=True,
        slots=(),
        held={},
    )
)


def node(name: str, *, role: str = "", gpu: bool = False, **annotations: str) -> dict[str, Any]:
    """A Node object; the role as its label says it."""
    labels = {"kubernetes.io/hostname": name}
    if role:
        labels[f"node-role.kubernetes.io/{role}"] = "" if role == "master" else "true"
    if gpu:
        labels["edgegpu.io/gpu"] = "true"
    known = {"extender": "edgegpu.io/extender", "report": REPORT_ANNOTATION}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {known[k]: v for k, v in annotations.items()}},
        "status": {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{len(name)}"}]},
    }


def test_every_server_needs_the_extender_with_cards_or_without() -> None:
    nodes = [
        node("three", role="master"),
        node("one", role="control-plane", extender="1.0"),
        node("two", role="control-plane", extender="0.9"),
        node("worker"),
    ]
    first, second = completeness(nodes, version="1.0")
    assert first.startswith("server three lacks the extender: whenever its scheduler leads")
    assert second.startswith("server two has the extender of 0.9, not of 1.0")
    assert all("run the same install line there" in line for line in (first, second))


def test_a_node_whose_cards_are_to_be_shared_needs_a_plugin() -> None:
    nodes = [node("one", role="control-plane", gpu=True, extender="1.0"), node("worker"), node("gpu", gpu=True)]
    assert [line.partition(":")[0] for line in completeness(nodes, version="1.0")] == [
        "node gpu lacks the plugin",
        "node one lacks the plugin",
    ]


def test_a_server_without_a_kubelet_is_found_by_its_address() -> None:
    nodes = [node("four", role="control-plane", extender="1.0")]
    (only,) = completeness(nodes, version="1.0", servers_at=["10.0.0.4", "10.0.0.9"])
    assert only.startswith("the server at 10.0.0.9 has no Node object")


def test_nothing_is_said_of_a_complete_one() -> None:
    nodes = [
        node("one", role="control-plane", gpu=True, extender="1.0", report=REPORT),
        {"metadata": {"name": "bare"}},
    ]
    assert completeness(nodes, version="1.0", servers_at=["10.0.0.3"]) == []
    assert completeness([], version="1.0") == []
