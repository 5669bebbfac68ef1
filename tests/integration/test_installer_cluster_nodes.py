"""Marks on nodes: set once, found, and taken away with the plugin's report; pods that use shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.clusterkit import Api, api

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster import Cluster, ClusterError
from edgegpu_installer.kinds import NODE
from edgegpu_installer.nodes import all_facts, clear, mark_extender, mark_gpu
from edgegpu_installer.shares import in_use

__all__ = ["api"]

MODEL = ResourceModel()


@pytest.fixture
def cluster(api: Api) -> Iterator[Cluster]:
    api.registry.create("nodes", {"metadata": {"name": "b-agent"}})
    labels = {"node-role.kubernetes.io/control-plane": "true"}
    api.registry.create("nodes", {"metadata": {"name": "z-server", "labels": labels}})
    with api.cluster() as found:
        yield found


def test_servers_come_first(cluster: Cluster) -> None:
    assert [(facts.name, facts.role) for facts in all_facts(cluster, MODEL)] == [
        ("z-server", "server"),
        ("b-agent", "agent"),
    ]


def test_a_mark_is_written_once(cluster: Cluster, api: Api) -> None:
    assert mark_gpu(cluster, "b-agent")
    assert mark_extender(cluster, "z-server", "0.1.0")
    version = api.registry.store.version
    assert not mark_gpu(cluster, "b-agent")
    assert not mark_extender(cluster, "z-server", "0.1.0")
    assert api.registry.store.version == version
    assert mark_extender(cluster, "z-server", "0.2.0")
    facts = {found.name: found for found in all_facts(cluster, MODEL)}
    assert facts["b-agent"].labelled
    assert facts["z-server"].extender == "0.2.0"


def test_a_node_that_is_not_there_is_said(cluster: Cluster) -> None:
    with pytest.raises(ClusterError) as caught:
        mark_gpu(cluster, "nowhere")
    assert caught.value.is_missing


def test_clearing_leaves_a_node_as_it_was(cluster: Cluster, api: Api) -> None:
    before = cluster.get(NODE, "z-server")["metadata"]
    mark_gpu(cluster, "z-server")
    mark_extender(cluster, "z-server", "0.1.0")
    report = {"edgegpu.io/cards-of-node": "{}", "theirs": "x"}
    change = {"metadata": {"annotations": report, "labels": {"edgegpu.io/report": "7"}}}
    api.registry.patch("nodes", "", "z-server", change)
    gone = clear(cluster, "z-server")
    assert set(gone.labels) == {"edgegpu.io/gpu", "edgegpu.io/report"}
    assert set(gone.annotations) == {"edgegpu.io/extender", "edgegpu.io/cards-of-node"}
    after = cluster.get(NODE, "z-server")["metadata"]
    assert after["labels"] == before["labels"]
    assert after["annotations"] == {"theirs": "x"}
    assert not clear(cluster, "z-server")
    assert not clear(cluster, "nowhere")


def test_pods_with_shares_are_found_in_all_namespaces(cluster: Cluster, api: Api) -> None:
    limits = {MODEL.memory_resource: "4", MODEL.core_resource: "10"}
    for space, name, node in (("one", "a", "b-agent"), ("two", "b", "z-server"), ("two", "c", "b-agent")):
        if api.registry.store.get(("namespaces", "", space)) is None:
            api.registry.create("namespaces", {"metadata": {"name": space}})
        asked = {"limits": limits} if name != "c" else {}
        spec = {"nodeName": node, "containers": [{"name": "m", "resources": asked}]}
        api.registry.create("pods", {"metadata": {"name": name, "namespace": space}, "spec": spec})
    assert [share.full_name for share in in_use(cluster, MODEL)] == ["one/a", "two/b"]
    assert [share.full_name for share in in_use(cluster, MODEL, node="b-agent")] == ["one/a"]
