"""Which identity an agent node has after the line is run again without its join token."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.clusterkit import Api, api

from edgegpu_installer.cluster.accounts import grant, join
from edgegpu_installer.cluster.kinds import SERVICE_ACCOUNT
from edgegpu_installer.cluster.rbac import Account
from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.credentials import agent_kubeconfig

__all__ = ["api"]

KUBELETS = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
KUBELET_CONFIG = """\
clusters: [{name: local, cluster: {server: "https://127.0.0.1:6444", certificate-authority: /ca.crt}}]
users: [{name: user, user: {client-certificate: /kubelet.crt, client-key: /kubelet.key}}]
contexts: [{name: Default, context: {cluster: local, user: user}}]
current-context: Default
"""


@pytest.fixture
def layout(tmp_path: Path, api: Api) -> Layout:
    made = Layout(tmp_path)
    for path in (made.kubeconfig, made.at(KUBELETS)):
        path.parent.mkdir(parents=True)
    made.at(KUBELETS).write_text(KUBELET_CONFIG)
    with api.controller(), api.cluster() as cluster:
        grant(cluster, api.rights)
        made.kubeconfig.write_text(join(cluster, api.rights, Account.AGENT).kubeconfig())
    return made


def test_a_joined_node_keeps_its_account_while_it_works(layout: Layout, api: Api) -> None:
    kept = agent_kubeconfig(layout, KUBELETS, "")
    assert kept.content == layout.kubeconfig.read_bytes()
    assert kept.mode == 0o600
    with api.cluster() as cluster:
        cluster.delete(SERVICE_ACCOUNT, Account.AGENT.value, api.rights.namespace)
    del api.tokens[api.secret(Account.AGENT)]
    assert agent_kubeconfig(layout, KUBELETS, "").link_to == KUBELETS


def test_a_joined_node_stays_so_while_nobody_answers(layout: Layout, api: Api) -> None:
    api.server.stop()
    assert agent_kubeconfig(layout, KUBELETS, "").content == layout.kubeconfig.read_bytes()


def test_a_node_that_acts_as_itself_goes_on_so(layout: Layout) -> None:
    layout.kubeconfig.unlink()
    layout.kubeconfig.symlink_to(layout.at(KUBELETS))
    assert agent_kubeconfig(layout, KUBELETS, "").link_to == KUBELETS
