import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from integration.kube_stub import KubeStub
from kits.cert import Certs, Pair, make_certs, server_context

from edgegpu_base.kube import Handlers, KubeClient, KubeError, Reflector, Unavailable, load_kubeconfig
from edgegpu_base.kube.connection import ApiConnection

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def certs() -> Certs:
    return make_certs()


@pytest.fixture
def stub(certs: Certs) -> Iterator[KubeStub]:
    with KubeStub(server_context(certs.server, clients=certs.ca)) as running:
        yield running


def kubeconfig(folder: Path, stub: KubeStub, certs: Certs, **cluster: object) -> Path:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    value = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [
            {
                "name": "x",
                "cluster": {
                    "server": stub.access.server.replace("http://", "https://"),
                    "certificate-authority-data": data(certs.ca),
                    **cluster,
                },
            }
        ],
        "users": [
            {
                "name": "x",
                "user": {
                    "client-certificate-data": data(certs.client.cert),
                    "client-key-data": data(certs.client.key),
                },
            }
        ],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(value))
    return file


def test_keys_inline_are_enough_for_mutual_tls(stub: KubeStub, certs: Certs, tmp_path: Path) -> None:
    stub.add_node({"metadata": {"name": "n", "uid": "u"}})
    for options in ({}, {"tls-server-name": "edgegpu-extender"}, {"insecure-skip-tls-verify": True}):
        client = KubeClient(load_kubeconfig(kubeconfig(tmp_path, stub, certs, **options)))
        assert client.get("/api/v1/nodes/n")["metadata"]["uid"] == "u"
        client.close()


def test_a_server_of_another_name_or_authority_is_not_spoken_to(stub: KubeStub, certs: Certs, tmp_path: Path) -> None:
    other = base64.b64encode(make_certs().ca.encode()).decode()
    for options in ({"tls-server-name": "other"}, {"certificate-authority-data": other}):
        client = KubeClient(load_kubeconfig(kubeconfig(tmp_path, stub, certs, **options)))
        with pytest.raises(Unavailable, match=r"certificate verify failed|doesn't match"):
            client.get("/api/v1/nodes/n")
        client.close()


def test_a_quiet_watch_over_tls_ends_at_once(stub: KubeStub, certs: Certs, tmp_path: Path) -> None:
    client = KubeClient(load_kubeconfig(kubeconfig(tmp_path, stub, certs)))
    handlers = Handlers[str](lambda _all: None, lambda _uid, _value: None, lambda _uid: None)
    reflector = Reflector(client, "/api/v1/pods", convert=lambda _item: None, handlers=handlers)
    reflector.start()
    assert stub.wait_called("watch=true", 1, DEADLINE_S)
    reflector.stop(DEADLINE_S / 2)
    assert not reflector.alive()
    client.close()


class NodeFiles:
    """A node's own kubeconfig, with certificate and key in files of their own, which k3s renews in place."""

    def __init__(self, folder: Path, stub: KubeStub, certs: Certs) -> None:
        self._folder = folder
        self.kubeconfig = kubeconfig(folder, stub, certs)
        self._value = yaml.safe_load(self.kubeconfig.read_text())
        self._value["users"][0]["user"] = {"client-certificate": "node.crt", "client-key": "node.key"}

    def lay(self, pair: Pair, *, server: str = "") -> None:
        cluster = self._value["clusters"][0]["cluster"]
        self.kubeconfig.write_text(yaml.safe_dump(self._value).replace(cluster["server"], server or cluster["server"]))
        (self._folder / "node.crt").write_text(pair.cert)
        (self._folder / "node.key").write_text(pair.key)


@pytest.fixture
def node(stub: KubeStub, certs: Certs, tmp_path: Path) -> NodeFiles:
    stub.add_node({"metadata": {"name": "n", "uid": "u"}})
    return NodeFiles(tmp_path, stub, certs)


def test_a_certificate_that_is_renewed_in_place_counts_at_once(node: NodeFiles, certs: Certs) -> None:
    node.lay(make_certs().client)
    client = KubeClient(load_kubeconfig(node.kubeconfig))
    with pytest.raises(Unavailable):
        client.get("/api/v1/nodes/n")
    node.lay(certs.client)
    assert client.get("/api/v1/nodes/n")["metadata"]["uid"] == "u"
    client.close()


def test_files_that_are_half_written_change_nothing_until_they_are_whole(node: NodeFiles, certs: Certs) -> None:
    now_s = 0.0
    node.lay(certs.client)
    way = ApiConnection(load_kubeconfig(node.kubeconfig), clock=lambda: now_s)
    first = way.connections().pool
    for broken in (Pair(certs.client.cert, "half a k"), Pair(certs.client.cert, certs.server.key), Pair("", "")):
        node.lay(broken)
        now_s += 10
        assert way.connections().pool is first
    node.lay(certs.server)
    assert way.connections().pool is first  # they were read just now
    now_s += 10
    assert way.connections().pool is not first
    way.close()


def test_files_that_say_the_same_as_before_keep_the_connections(node: NodeFiles, certs: Certs) -> None:
    node.lay(certs.client)
    way = ApiConnection(load_kubeconfig(node.kubeconfig))
    first = way.connections().pool
    node.lay(certs.client)
    assert way.connections().pool is first
    way.close()


def test_a_kubeconfig_behind_a_link_that_names_another_server(node: NodeFiles, certs: Certs, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(node.kubeconfig)
    node.lay(certs.client, server="https://127.0.0.1:1")
    client = KubeClient(load_kubeconfig(link))
    with pytest.raises(Unavailable, match="refused"):
        client.get("/api/v1/nodes/n")
    node.lay(certs.client)
    assert client.get("/api/v1/nodes/n")["metadata"]["uid"] == "u"
    client.close()


def test_a_key_that_is_none(stub: KubeStub, certs: Certs, tmp_path: Path) -> None:
    access = load_kubeconfig(kubeconfig(tmp_path, stub, certs))
    broken = type(access)(server=access.server, ca_pem=access.ca_pem, cert_pem="no certificate", key_pem="no key")
    with pytest.raises(KubeError, match=r"cannot use the certificates.*write the kubeconfig anew"):
        KubeClient(broken)
