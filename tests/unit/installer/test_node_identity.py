"""An agent node's way to the API server: kubelet's own kubeconfig, or the server's join token."""

import base64

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kits.cert import Authority

from edgegpu_installer.cluster.node_identity import NodeIdentity, ca_sha256, identity, link, pack, unpack
from edgegpu_installer.errors import InstallError

K3S = """apiVersion: v1
clusters:
- cluster:
    server: https://127.0.0.1:6444
    certificate-authority: /var/lib/rancher/k3s/agent/server-ca.crt
  name: local
contexts:
- context:
    cluster: local
    namespace: default
    user: user
  name: Default
current-context: Default
kind: Config
preferences: {}
users:
- name: user
  user:
    client-certificate: /var/lib/rancher/k3s/agent/client-kubelet.crt
    client-key: /var/lib/rancher/k3s/agent/client-kubelet.key
"""
PATH = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"


CA = Authority("k3s-server-ca@1").pem
SECRET = "header.payload.signature"  # noqa: S105 - the test's
WORD = pack(server="https://10.0.0.1:6443", ca_pem=CA, token=SECRET)


def test_kubelets_kubeconfig_names_files_that_are_renewed_in_place() -> None:
    agent = "/var/lib/rancher/k3s/agent"
    expected = NodeIdentity(
        "https://127.0.0.1:6444", f"{agent}/server-ca.crt", f"{agent}/client-kubelet.crt", f"{agent}/client-kubelet.key"
    )
    assert identity(K3S, path=PATH) == expected
    change = link(PATH)
    assert (change.path, change.link_to, change.content) == ("/etc/edgegpu/kubeconfig", PATH, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "clusters: [",
        K3S.replace("current-context: Default", "current-context: Other"),
        K3S.replace("client-certificate: ", "client-certificate-data: "),
        K3S.replace("/var/lib/rancher/k3s/agent/client-kubelet.key", "client-kubelet.key"),
    ],
)
def test_another_kubeconfig_is_refused_and_the_token_named(text: str) -> None:
    with pytest.raises(InstallError, match="cannot act as this node") as caught:
        identity(text, path=PATH)
    assert "--join" in caught.value.remedy


def test_a_join_token_becomes_a_kubeconfig_for_the_right_ca_alone() -> None:
    joined = unpack(f"  {WORD[:70]}\n{WORD[70:]}\n")
    assert (joined.server, joined.token) == ("https://10.0.0.1:6443", SECRET)
    assert "signature" not in repr(joined)
    config = yaml.safe_load(joined.kubeconfig(f"\n{CA}\n\n", server="https://127.0.0.1:6444"))
    assert config["users"][0]["user"] == {"token": SECRET}
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:6444"
    assert ca_sha256(base64.b64decode(cluster["certificate-authority-data"]).decode()) == ca_sha256(CA)
    assert yaml.safe_load(joined.kubeconfig(CA))["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    with pytest.raises(InstallError, match="cannot join") as caught:
        joined.kubeconfig(Authority("k3s-server-ca@1").pem)
    assert "another machine answers" in caught.value.remedy


def test_a_bundle_is_the_same_in_any_order() -> None:
    other = Authority("old").pem
    assert ca_sha256(CA + other) == ca_sha256(f"{other}\n{CA}") != ca_sha256(CA)
    with pytest.raises(InstallError, match="not a PEM certificate"):
        ca_sha256("hello")


@given(st.data())
def test_a_token_that_was_not_copied_whole_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(WORD) - 1))
    change = data.draw(st.sampled_from(["cut", "drop", "swap"]))
    swapped = "A" if WORD[place] != "A" else "B"
    bad = {
        "cut": WORD[:place],
        "drop": WORD[:place] + WORD[place + 1 :],
        "swap": WORD[:place] + swapped + WORD[place + 1 :],
    }[change]
    if bad == WORD:
        return
    with pytest.raises(InstallError, match="cannot join") as caught:
        unpack(bad)
    assert "copy the whole line" in caught.value.remedy


@pytest.mark.parametrize("change", [{"server": "http://10.0.0.1"}, {"token": "two words"}])
def test_a_token_of_something_else_is_refused(change: dict[str, str]) -> None:
    values = {"server": "https://10.0.0.1:6443", "ca_pem": CA, "token": "t"} | change
    with pytest.raises(InstallError, match="no https server or no token"):
        unpack(pack(**values))


@given(st.from_regex(r"[A-Za-z0-9._-]{1,2000}", fullmatch=True))
def test_every_token_comes_out_as_it_went_in(token: str) -> None:
    joined = unpack(pack(server="https://[fd00::1]:6443", ca_pem=CA, token=token))
    assert (joined.server, joined.ca_sha256, joined.token) == ("https://[fd00::1]:6443", ca_sha256(CA), token)
