"""Marks on nodes: set once, found, and taken away with the plugin's report; pods that use shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.clusterkit import Api, api

from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import NODE
from edgegpu_installer.cluster.nodes import all_facts, clear, mark_extender, mark_gpu
from edgegpu_installer.cluster.shares import in_use
from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.unit_size import UnitInUseError, changes, refuse_while_held

__all__ = ["api"]

MODEL = ResourceModel()


@pytest.fixture
def cluster(api: Api) -> Iterator[ClusterClient]:
    api.registry.create("nodes", {"metadata": {"name": "b-agent"}})
    labels = {"node-role.kubernetes.io/control-plane": "true"}
    api.registry.create("nodes", {"metadata": {"name": "z-server", "labels": labels}})
    with api.cluster() as found:
        yield found


def test_servers_come_first(cluster: ClusterClient) -> None:
    assert [(facts.name, facts.role) for facts in all_facts(cluster, MODEL)] == [
        ("z-server", "server"),
        ("b-agent", "agent"),
    ]


def test_a_mark_is_written_once(cluster: ClusterClient, api: Api) -> None:
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


def test_a_node_that_is_not_there_is_said(cluster: ClusterClient) -> None:
    with pytest.raises(ClusterError) as caught:
        mark_gpu(cluster, "nowhere")
    assert caught.value.is_missing


def test_clearing_leaves_a_node_as_it_was(cluster: ClusterClient, api: Api) -> None:
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


def test_pods_with_shares_are_found_in_all_namespaces(cluster: ClusterClient, api: Api) -> None:
    limits = {MODEL.memory_resource: "4", MODEL.core_resource: "10"}
    for space, name, node in (("one", "a", "b-agent"), ("two", "b", "z-server"), ("two", "c", "b-agent")):
        if api.registry.store.get(("namespaces", "", space)) is None:
            api.registry.create("namespaces", {"metadata": {"name": space}})
        asked = {"limits": limits} if name != "c" else {}
        spec = {"nodeName": node, "containers": [{"name": "m", "resources": asked}]}
        api.registry.create("pods", {"metadata": {"name": name, "namespace": space}, "spec": spec})
    assert [share.full_name for share in in_use(cluster, MODEL)] == ["one/a", "two/b"]
    assert [share.full_name for share in in_use(cluster, MODEL, node="b-agent")] == ["one/a"]


def test_another_unit_is_refused_while_pods_of_the_node_hold_shares(
    cluster: ClusterClient, api: Api, tmp_path: Path
) -> None:
    layout = Layout(tmp_path)
    assert not changes(layout, 512)  # nothing is installed
    layout.units.mkdir(parents=True)
    (layout.units / "edgegpu-plugin.service").touch()
    assert not changes(layout, None)
    assert not changes(layout, 256)
    assert changes(layout, 512)
    refuse_while_held(cluster, layout, 512, node="b-agent")
    limits = {MODEL.memory_resource: "4", MODEL.core_resource: "10"}
    spec = {"nodeName": "b-agent", "containers": [{"name": "m", "resources": {"limits": limits}}]}
    api.registry.create("namespaces", {"metadata": {"name": "default"}})
    api.registry.create("pods", {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
    refuse_while_held(cluster, layout, 512, node="z-server")
    refuse_while_held(cluster, layout, 256, node="b-agent")
    with pytest.raises(UnitInUseError) as caught:
        refuse_while_held(cluster, layout, 512, node="b-agent")
    assert "cannot change the unit to 512 MiB: a pod of this node holds a share in units of 256" in str(caught.value)
    assert "default/a on b-agent (m: 4 units, core 10)" in str(caught.value)
    layout.plugin_yaml.parent.mkdir(parents=True)
    layout.plugin_yaml.write_text("resources: {unit_mib: 512}\n")
    assert not changes(layout, 512)
