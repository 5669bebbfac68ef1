"""The rights of a release, and the kubeconfigs that carry them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.cluster.kinds import LEASE, NODE, POD, kind_of
from edgegpu_installer.cluster.rbac import parse_rights, read_rights
from edgegpu_installer.errors import InstallError

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
RBAC = (EXAMPLES / "rbac.yaml").read_text()


def test_the_documented_rights_are_taken_in_an_order_that_works() -> None:
    rights = read_rights(EXAMPLES / "rbac.yaml")
    kinds = [item["kind"] for item in rights.items]
    assert rights.namespace == "edgegpu"
    assert kinds == sorted(
        kinds, key=["Namespace", "ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding"].index
    )
    assert len(rights.items) == len([item for item in yaml.safe_load_all(RBAC) if item])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RBAC.replace("kind: ServiceAccount", "kind: Pod"), "holds a Pod"),
        (RBAC.replace("kind: ServiceAccount", "kind: ConfigMap"), "no kind"),
        (RBAC.replace("  namespace: edgegpu", "  namespace: kube-system", 1), "must name one"),
        (RBAC.partition("---")[0], "lacks"),
        ("- a\n", "not an object"),
        ("a: [", "not YAML"),
    ],
)
def test_other_things_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_rights(text)


def test_a_release_that_is_torn_is_said(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="unpack the release anew"):
        read_rights(tmp_path / "rbac.yaml")
    (tmp_path / "rbac.yaml").write_text("a: [")
    with pytest.raises(InstallError, match=r"cannot use .*not YAML"):
        read_rights(tmp_path / "rbac.yaml")


def test_paths_of_the_api() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("a/b", "x") == "/api/v1/namespaces/x/pods/a%2Fb"
    assert NODE.path("n", sub="status") == "/api/v1/nodes/n/status"
    assert LEASE.path("l", "kube-system") == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"
    with pytest.raises(ValueError, match="Deployment"):
        kind_of({"apiVersion": "apps/v1", "kind": "Deployment"})


def test_what_is_minted_is_read_again(tmp_path: Path) -> None:
    text = kubeconfig.render(server="https://127.0.0.1:6443", ca_pem="CA\n", token="t0ken")  # noqa: S106
    (tmp_path / "k").write_text(text)
    access = kubeconfig.read(tmp_path / "k")
    assert (access.server, access.ca_pem, access.token) == ("https://127.0.0.1:6443", "CA\n", "t0ken")
    assert "t0ken" not in repr(access)


def test_it_is_what_the_documented_template_makes() -> None:
    template = (EXAMPLES / "kubeconfig.tmpl").read_text()
    ca = base64.b64encode(b"CA").decode()
    by_hand = template.replace('{{index .data "ca.crt"}}', ca).replace("{{base64decode .data.token}}", "t0ken")
    minted = kubeconfig.render(server="https://127.0.0.1:6443", ca_pem="CA", token="t0ken")  # noqa: S106
    assert minted == by_hand


TWO = """
clusters: [{name: a, cluster: {server: https://a:1}}, {name: b, cluster: {server: https://b:2, tls-server-name: x}}]
users: [{name: u, user: {token: t, as: someone}}, {name: p, user: {exec: {command: aws}}}]
contexts:
  - {name: one, context: {cluster: a, user: u}}
  - {name: two, context: {cluster: b, user: u}}
  - {name: program, context: {cluster: a, user: p}}
current-context: one
"""


def test_contexts_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(TWO)
    assert kubeconfig.read(tmp_path / "k").server == "https://a:1"
    (tmp_path / "k").write_text(TWO.replace("current-context: one", "current-context: two"))
    chosen = kubeconfig.read(tmp_path / "k")
    assert (chosen.server, chosen.server_name) == ("https://b:2", "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read kubeconfig"),
        ("a: [", "not YAML"),
        ("{}", "current-context '' is not among"),
        (TWO.replace("current-context: one", "current-context: program"), "logs in with an exec plugin"),
        (TWO.replace("https://a:1", "a:1"), "not an http"),
        (TWO.replace("token: t", "client-certificate-data: '%%'"), "not PEM"),
        (TWO.replace("token: t", "client-certificate-data: QQ=="), "no client-key"),
        (TWO.replace("token: t", "tokenFile: nowhere"), "cannot read .*nowhere"),
        ("clusters: 1", "clusters"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "k").write_text(text)
    with pytest.raises(InstallError, match=words) as caught:
        kubeconfig.read(tmp_path / "k")
    assert caught.value.remedy
