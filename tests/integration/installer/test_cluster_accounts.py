"""Accounts of least privilege: made, reused to the byte, told from others', and removed without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.clusterkit import ADMIN, CA_PEM, Api, api

from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.cluster.accounts import ControllerWait, grant, join, present, remove, usable
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.rbac import Account
from edgegpu_installer.errors import InstallError

__all__ = ["api"]

PACE = ControllerWait(every_s=0.02)


@pytest.fixture
def granted(api: Api) -> Api:
    with api.cluster() as cluster:
        grant(cluster, api.rights)
    return api


def minted(api: Api, account: Account = Account.SERVER) -> str:
    with api.controller(), api.cluster() as cluster:
        return join(cluster, api.rights, account, pace=PACE).kubeconfig()


def test_granting_twice_changes_nothing(granted: Api) -> None:
    version = granted.registry.store.version
    with granted.cluster() as cluster:
        grant(cluster, granted.rights)
        assert len(present(cluster, granted.rights)) == len(granted.rights.items)
    assert granted.registry.store.version == version


def test_the_kubeconfig_names_this_server_its_ca_and_the_token(granted: Api, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(minted(granted))
    access = kubeconfig.read(tmp_path / "k")
    assert access.server == granted.server.url
    assert access.ca_pem == CA_PEM
    assert access.token == granted.secret(Account.SERVER) != ADMIN


def test_the_ca_that_checked_this_connection_goes_first(granted: Api) -> None:
    with granted.controller(), ClusterClient(granted.admin(ca_pem="OWN")) as cluster:
        material = join(cluster, granted.rights, Account.AGENT, pace=PACE)
    assert material.ca_pem == "OWN"
    assert material.token not in repr(material)


def test_minting_again_gives_the_same_bytes(granted: Api) -> None:
    assert minted(granted) == minted(granted)


def test_without_a_controller_there_is_no_token(granted: Api) -> None:
    with granted.cluster() as cluster, pytest.raises(InstallError, match="cannot get a token") as caught:
        join(cluster, granted.rights, Account.SERVER, pace=ControllerWait(token_s=0.1, every_s=0.02))
    assert "controller-manager" in caught.value.remedy


def test_a_kubeconfig_that_works_is_kept(granted: Api, tmp_path: Path) -> None:
    file = tmp_path / "k"
    assert not usable(file, Account.SERVER)
    file.write_text(minted(granted))
    assert usable(file, Account.SERVER)
    file.write_text(minted(granted, Account.AGENT))
    assert usable(file, Account.AGENT)
    assert not usable(file, Account.SERVER)  # it may not bind


def test_an_administrators_is_not_kept(granted: Api, tmp_path: Path) -> None:
    access = granted.admin()
    (tmp_path / "k").write_text(kubeconfig.render(server=access.server, ca_pem="CA", token=ADMIN))
    assert not usable(tmp_path / "k", Account.SERVER)


def test_one_whose_token_is_withdrawn_is_not_kept(granted: Api, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(minted(granted))
    granted.tokens.pop(granted.secret(Account.SERVER))
    assert not usable(tmp_path / "k", Account.SERVER)


def test_nothing_is_said_of_one_while_the_api_is_away(granted: Api, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(minted(granted))
    granted.server.stop()
    with pytest.raises(ClusterError):
        usable(tmp_path / "k", Account.SERVER)


def test_removal_leaves_nothing_and_can_be_run_again(granted: Api) -> None:
    with granted.cluster() as cluster:
        done = remove(cluster, granted.rights, pace=PACE)
        assert present(cluster, granted.rights) == ()
        assert remove(cluster, granted.rights, pace=PACE).gone == ()
    assert done.left == ()
    assert len(done.gone) == len(granted.rights.items)
    assert done.gone[-1] == "Namespace edgegpu"
    assert "Secret edgegpu/edgegpu-server" in done.gone
    assert [item["metadata"]["name"] for item in granted.registry.items("namespaces")] == ["kube-system"]
