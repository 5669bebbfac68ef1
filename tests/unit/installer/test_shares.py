"""Which pods an uninstall would take the cards from."""

from __future__ import annotations

from typing import Any

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster.shares import said, shares_of

MODEL = ResourceModel()


def a_pod(
    name: str, *, memory: int = 4, node: str = "box", phase: str = "Running", init: int = 0, space: str = "apps"
) -> dict[str, Any]:
    def container(called: str, units: int) -> dict[str, Any]:
        limits = {MODEL.memory_resource: str(units), MODEL.core_resource: "10"} if units else {}
        return {"name": called, "resources": {"limits": limits}}

    return {
        "metadata": {"name": name, "namespace": space, "uid": name},
        "spec": {
            "nodeName": node,
            "containers": [container("main", memory), container("side", 0)],
            "initContainers": [container("load", init)],
        },
        "status": {"phase": phase},
    }


def names(*pods: dict[str, Any], node: str | None = None) -> list[str]:
    return [share.full_name for share in shares_of(pods, MODEL, node=node)]


def test_only_pods_that_ask_and_have_not_ended() -> None:
    pods = (a_pod("a"), a_pod("plain", memory=0), a_pod("done", phase="Succeeded"), a_pod("dead", phase="Failed"))
    assert names(*pods) == ["apps/a"]
    assert names(a_pod("b", memory=0, init=2)) == ["apps/b"]


def test_of_one_node_of_all_or_of_none() -> None:
    pods = (a_pod("here"), a_pod("there", node="other"), a_pod("waits", node="", phase="Pending", space="zz"))
    assert names(*pods) == ["zz/waits", "apps/here", "apps/there"]
    assert names(*pods, node="box") == ["apps/here"]
    assert names(*pods, node="") == ["zz/waits"]


def test_a_line_says_where_and_how_much() -> None:
    (share,) = shares_of([a_pod("a", init=2)], MODEL)
    assert said(share) == "apps/a on box (load: 2 units, core 10; main: 4 units, core 10)"
    (share,) = shares_of([a_pod("a", node="", phase="Pending")], MODEL)
    assert said(share) == "apps/a waiting for a node (main: 4 units, core 10)"
