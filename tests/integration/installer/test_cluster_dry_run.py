"""What a dry run says of the cluster: seen without a write, and said where nobody answers."""

from __future__ import annotations

from integration.clusterkit import Api, api

from edgegpu_base.kube.kubeconfig import ApiAccess
from edgegpu_installer.cluster.accounts import grant, named
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.nodes import mark_extender, mark_gpu
from edgegpu_installer.plan.dry_run import DryRun, of_install, of_uninstall

__all__ = ["api"]

LEASE = "Lease kube-system/edgegpu-install"


def install_on(api: Api, nodes: tuple[str, ...] = ("box",)) -> DryRun:
    return of_install(api.cluster, api.rights, gpu=nodes, extender="box", by="2.0")


def test_an_installation_names_marks_and_objects_and_writes_nothing(api: Api) -> None:
    api.registry.create("nodes", {"metadata": {"name": "box"}})
    version = api.registry.store.version
    seen = install_on(api, ("box", "nowhere"))
    assert api.registry.store.version == version
    assert [(m.node, m.kind, m.name, m.value, m.change) for m in seen.marks] == [
        ("box", "label", "edgegpu.io/gpu", "true", "new"),
        ("nowhere", "label", "edgegpu.io/gpu", "true", "no such node"),
        ("box", "annotation", "edgegpu.io/extender", "2.0", "new"),
    ]
    assert {one.name: one.change for one in seen.objects} == dict.fromkeys(named(api.rights), "new") | {
        LEASE: "for the run"
    }
    assert not seen.unseen


def test_a_second_installation_changes_what_differs(api: Api) -> None:
    api.registry.create("nodes", {"metadata": {"name": "box"}})
    with api.cluster() as cluster:
        grant(cluster, api.rights)
        mark_gpu(cluster, "box")
        mark_extender(cluster, "box", "1.0")
    seen = install_on(api)
    assert [mark.change for mark in seen.marks] == ["as it is", "changed"]
    assert {one.change for one in seen.objects} == {"as it is", "for the run"}


def test_an_uninstall_takes_the_accounts_with_the_last_machine(api: Api) -> None:
    for name in ("box", "other"):
        api.registry.create("nodes", {"metadata": {"name": name}})
    with api.cluster() as cluster:
        grant(cluster, api.rights)
        mark_gpu(cluster, "box")
        mark_extender(cluster, "other", "1.0")
    seen = of_uninstall(api.cluster, api.rights, node="box", is_server=True)
    assert [(mark.name, mark.change) for mark in seen.marks] == [("edgegpu.io/gpu", "removed")]
    assert {one.change for one in seen.objects} == {"stays for other", "for the run"}
    last = of_uninstall(api.cluster, api.rights, node="other", is_server=True)
    assert {one.change for one in last.objects} == {"removed", "for the run"}
    assert of_uninstall(api.cluster, api.rights, node="box", is_server=False).objects == ()


def test_a_cluster_that_is_away_is_said(api: Api) -> None:
    def away() -> ClusterClient:
        return ClusterClient(ApiAccess(server="http://127.0.0.1:9"), timeout_s=1.0)

    seen = of_install(away, api.rights, gpu=("box",), extender="", by="1.0")
    assert [mark.change for mark in seen.marks] == ["unknown"]
    assert seen.unseen
    assert of_uninstall(away, api.rights, node="box", is_server=True).unseen
