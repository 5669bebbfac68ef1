"""Which pods kubelet still has, asked in the one way or the other, of an API server on a real socket."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.kube_stub import Fault, Json, KubeStub
from property.cases import MODEL

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.kube import Forbidden, KubeClient, KubeObjects, Unavailable
from edgegpu_plugin.kubelet.node_api import NodeKubeletFacts
from edgegpu_plugin.kubelet.pods import REFUSED_S, KubeletPods, PodResources

NODE = "n"


def pod(name: str, *, mirrors: str = "", owner: str = NODE, created: str = "2026-01-01T00:00:00Z") -> Json:
    metadata: Json = {"namespace": "default", "name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    if mirrors:
        marks = ("kubernetes.io/config.mirror", "kubernetes.io/config.hash")
        metadata["annotations"] = dict.fromkeys(marks, mirrors) | {"kubernetes.io/config.source": "file"}
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": owner, "uid": "n"}]
    limits = {MODEL.memory_resource: "1", MODEL.core_resource: "1"}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return {"metadata": metadata, "spec": {"nodeName": NODE, "containers": containers}, "status": {"phase": "Running"}}


class Bed:
    """A node's folders, its API server, and what asks them."""

    def __init__(self, stub: KubeStub, client: KubeClient, folder: Path) -> None:
        self.stub = stub
        self.folder = folder
        self.now_s = 0.0
        self.kubelet = KubeletPods(node=NODE, objects=KubeObjects(client), folder=folder, clock=lambda: self.now_s)
        self.kubelet_facts = NodeKubeletFacts(
            model=MODEL, kubelet=self.kubelet, pod_resources=PodResources(folder / "no.sock")
        )

    def refuse(self, status: int = 403) -> None:
        self.stub.faults.append(Fault("/proxy/", status=status, lasts=True))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with KubeStub() as stub:
        client = KubeClient(stub.access, timeout_s=5)
        (tmp_path / "pods").mkdir()
        yield Bed(stub, client, tmp_path / "pods")
        client.close()


def test_kubelets_own_list_counts_where_it_can_be_read(bed: Bed) -> None:
    (bed.folder / "uid-left-over").mkdir()
    bed.stub.add_pod(pod("a"))
    assert bed.kubelet.uids() == {"uid-a"}
    assert bed.kubelet.source == "kubelet's own list"
    assert [one["metadata"]["uid"] for one in bed.kubelet.pods()] == ["uid-a"]


def test_where_it_is_refused_a_pod_is_known_while_it_has_a_folder_or_an_object(bed: Bed) -> None:
    bed.refuse()
    for uid in ("uid-a", "uid-forced"):
        (bed.folder / uid).mkdir()
    bed.stub.add_pod(pod("a"))
    bed.stub.add_pod(pod("admitted"))  # kubelet has not made its folder yet
    assert bed.kubelet.uids() == {"uid-a", "uid-forced", "uid-admitted"}
    shutil.rmtree(bed.folder / "uid-forced")
    assert bed.kubelet_facts.known_uids() == frozenset({"uid-a", "uid-admitted"})
    assert str(bed.folder) in bed.kubelet.source


def test_a_static_pod_is_known_by_the_name_that_kubelet_has_for_it(bed: Bed) -> None:
    bed.refuse()
    bed.stub.add_pod(pod("mirror", mirrors="hash"))
    assert bed.kubelet.uids() == {"uid-mirror", "hash"}
    assert [(view.uid, view.is_static) for view in bed.kubelet_facts.pods() or ()] == [("hash", True)]


def test_where_kubelet_may_not_be_asked_a_mirror_is_believed_when_nothing_contradicts_it(bed: Bed) -> None:
    bed.refuse()
    bed.stub.add_pod(pod("victim"))
    bed.stub.add_pod(pod("forged", mirrors="uid-victim"))
    bed.stub.add_pod(pod("a-second", mirrors="hash", created="2026-01-02T00:00:00Z"))
    bed.stub.add_pod(pod("file", mirrors="hash"))
    bed.stub.add_pod(pod("elsewhere", mirrors="other", owner="another-node"))
    views = bed.kubelet_facts.pods() or ()
    assert {(view.uid, view.name, view.is_static) for view in views} == {
        ("uid-victim", "victim", False),
        ("hash", "file", True),
    }
    assert "other" not in bed.kubelet.uids()


def test_an_author_makes_no_pod_static(bed: Bed) -> None:
    bed.refuse()
    forged = pod("forged")
    forged["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    bed.stub.add_pod(forged)
    assert [view.is_static for view in bed.kubelet_facts.pods() or ()] == [False]


def test_a_refusal_counts_for_a_minute(bed: Bed) -> None:
    bed.refuse()
    for _ in range(3):
        bed.kubelet.uids()
        bed.kubelet.pods()
    assert bed.stub.count("/proxy/") == 1
    bed.stub.faults.clear()
    bed.now_s = REFUSED_S
    bed.kubelet.uids()
    assert bed.kubelet.source == "kubelet's own list"


def test_where_it_is_refused_the_api_tells_which_pods_there_are(bed: Bed) -> None:
    bed.refuse()
    bed.stub.add_pod(pod("a"))
    assert [view.uid for view in bed.kubelet_facts.pods() or ()] == ["uid-a"]


def test_what_is_no_refusal_is_no_answer(bed: Bed) -> None:
    (bed.folder / "uid-a").mkdir()
    for status, error in ((401, Forbidden), (503, Unavailable)):
        bed.stub.faults = [Fault("/proxy/", status=status, lasts=True)]
        with pytest.raises(error):
            bed.kubelet.uids()
        assert bed.kubelet_facts.known_uids() is None
        assert bed.kubelet.source == ""


def test_no_folder_is_no_answer(bed: Bed) -> None:
    bed.refuse()
    bed.folder.rmdir()
    with pytest.raises(EdgegpuError, match=r"cannot read kubelet's folder .*: No such file.*: set kubelet\.folder"):
        bed.kubelet.uids()
    assert bed.kubelet_facts.known_uids() is None
