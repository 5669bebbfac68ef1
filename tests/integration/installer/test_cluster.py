"""The installer's way to the API server: what it sends, what it makes of answers, and what it leaves on the machine."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.clusterkit import Api, api, write_admin
from integration.kube_stub import KubeStub
from kits.cert import make_certs, server_context

from edgegpu_base.kube.kubeconfig import ApiAccess
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import CLUSTER_ROLE, LEASE, NAMESPACE, NODE, POD, SECRET

__all__ = ["api"]


@pytest.fixture
def cluster(api: Api) -> Iterator[ClusterClient]:
    with api.cluster() as found:
        yield found


def role(*verbs: str) -> dict[str, object]:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}]
    return {
        "apiVersion": CLUSTER_ROLE.version,
        "kind": "ClusterRole",
        "metadata": {"name": "r", "labels": {"a": "b"}},
        "rules": rules,
    }


def test_it_is_ready_says_its_version_and_the_time(api: Api, tmp_path: Path) -> None:
    with ClusterClient.from_kubeconfig(write_admin(tmp_path / "k3s.yaml", api)) as cluster:
        assert cluster.ready()
        assert cluster.version() == "v1.33.0+sim"
        now = cluster.call("GET", "/version").date
    assert now is not None
    assert abs(now - dt.datetime.now(dt.UTC)) < dt.timedelta(seconds=60)


def test_apply_get_find_delete(cluster: ClusterClient) -> None:
    assert cluster.find(CLUSTER_ROLE, "r") is None
    made = cluster.apply(role("get"))
    assert cluster.apply(role("get")) == made
    assert cluster.apply(role("get", "list"))["metadata"]["uid"] == made["metadata"]["uid"]
    assert cluster.get(CLUSTER_ROLE, "r")["rules"][0]["verbs"] == ["get", "list"]
    assert cluster.delete(CLUSTER_ROLE, "r")
    assert not cluster.delete(CLUSTER_ROLE, "r")


def test_patches_and_the_status(cluster: ClusterClient, api: Api) -> None:
    api.registry.create("nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"a/b": "1", "cpu": "2"}}})
    cluster.patch(NODE, "n", {"metadata": {"labels": {"x": "y"}}})
    node = cluster.patch(NODE, "n", {"status": {"phase": "p", "capacity": {"a/b": None}}}, sub="status")
    assert node["status"] == {"capacity": {"cpu": "2"}, "phase": "p"}
    assert node["metadata"]["labels"] == {"x": "y"}


def test_lists_are_read_to_their_end(cluster: ClusterClient, api: Api) -> None:
    for number in range(450):
        metadata = {"name": f"s{number:03}", "namespace": "kube-system", "labels": {"even": str(number % 2 == 0)}}
        api.registry.create("secrets", {"metadata": metadata})
    assert len(cluster.items(SECRET)) == 450
    assert len(cluster.items(SECRET, "kube-system", labels="even=True")) == 225
    assert cluster.items(POD, fields="spec.nodeName=n") == []


def test_versions_are_preconditions(cluster: ClusterClient) -> None:
    body = {"apiVersion": LEASE.version, "kind": "Lease", "metadata": {"name": "l", "namespace": "kube-system"}}
    made = cluster.create(body)
    old = made["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": old}, "spec": {"holderIdentity": "a"}}
    new = cluster.patch(LEASE, "l", change, "kube-system")["metadata"]["resourceVersion"]
    for again in (
        lambda: cluster.patch(LEASE, "l", change, "kube-system"),
        lambda: cluster.delete(LEASE, "l", "kube-system", version=old),
        lambda: cluster.create(body),
    ):
        with pytest.raises(ClusterError) as caught:
            again()
        assert caught.value.is_conflict
    assert cluster.delete(LEASE, "l", "kube-system", version=new)


def test_refusals_say_what_why_and_what_to_do(api: Api) -> None:
    with ClusterClient(api.admin(token="nobody")) as cluster, pytest.raises(ClusterError) as caught:  # noqa: S106
        cluster.get(NAMESPACE, "kube-system")
    assert caught.value.status == 401
    text = str(caught.value)
    assert text.startswith(f"cannot GET /api/v1/namespaces/kube-system at {api.server.url}: 401: Unauthorized")
    assert "edgegpu install" in caught.value.remedy
    assert "nobody" not in text


def test_one_that_is_down_is_told_from_one_that_refuses(api: Api, cluster: ClusterClient) -> None:
    assert cluster.ready()
    api.server.stop()
    assert not cluster.ready()
    with pytest.raises(ClusterError) as caught:
        cluster.get(NAMESPACE, "kube-system")
    assert caught.value.is_unreached
    assert "systemctl status k3s" in caught.value.remedy
    api.server.start()
    assert cluster.get(NAMESPACE, "kube-system")


def test_one_that_says_nothing_is_given_up(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = api.admin(server=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with ClusterClient(access, timeout_s=0.2) as cluster, pytest.raises(ClusterError) as caught:
            cluster.version()
    assert caught.value.is_unreached


def test_a_proxy_for_the_download_is_not_for_the_cluster(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with api.cluster() as cluster:
        assert cluster.version()


@pytest.fixture
def tls() -> Iterator[tuple[KubeStub, ApiAccess]]:
    certs = make_certs("kubernetes")
    with KubeStub(server_context(certs.server, clients=certs.ca)) as stub:
        server = stub.access.server.replace("http://", "https://")
        yield (
            stub,
            ApiAccess(server=server, ca_pem=certs.ca, cert_pem=certs.client.cert, key_pem=certs.client.key),
        )


def test_the_administrators_key_is_never_in_a_file(
    tls: tuple[KubeStub, ApiAccess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    stub, access = tls
    with ClusterClient(access) as cluster:
        assert cluster.items(POD) == []
        assert stub.calls
        assert list(tmp_path.iterdir()) == []
    assert access.key_pem is not None
    assert access.key_pem not in repr(access)


def test_kubelets_certificate_and_key_may_be_one_file(tls: tuple[KubeStub, ApiAccess]) -> None:
    _, access = tls
    pem = f"{access.cert_pem}{access.key_pem}"
    with ClusterClient(ApiAccess(server=access.server, ca_pem=access.ca_pem, cert_pem=pem, key_pem=pem)) as cluster:
        assert cluster.items(POD) == []


def test_another_clusters_ca_is_not_believed(tls: tuple[KubeStub, ApiAccess]) -> None:
    _, access = tls
    other = make_certs().ca
    wrong = ApiAccess(server=access.server, ca_pem=other, cert_pem=access.cert_pem, key_pem=access.key_pem)
    with ClusterClient(wrong) as cluster, pytest.raises(ClusterError, match="CERTIFICATE_VERIFY_FAILED"):
        cluster.version()


def test_certificates_that_are_none_are_said_at_once() -> None:
    with pytest.raises(ClusterError, match="cannot use the certificates"):
        ClusterClient(ApiAccess(server="https://127.0.0.1:1", cert_pem="x", key_pem="y"))
