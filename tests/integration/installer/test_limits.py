"""The account for app limits: made, narrowed, kept to the byte, left out where it would be unbounded, and removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from integration.clusterkit import Api, api

from edgegpu_agent.app_limits import rbac
from edgegpu_agent.cli.setup.enrol_options import app_limits
from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import FileChange
from edgegpu_installer.cluster import accounts, app_limits_account
from edgegpu_installer.cluster.accounts import ControllerWait
from edgegpu_installer.cluster.rbac import Account
from edgegpu_installer.layout import LIMITS_KUBECONFIG, Layout
from edgegpu_installer.plan.dry_run import of_install

__all__ = ["api"]

PACE = ControllerWait(every_s=0.02)
LEASE = {"metadata": {"name": "edgegpu-app-limits"}, "spec": {}}


@pytest.fixture
def granted(api: Api) -> Api:
    with api.cluster() as cluster:
        accounts.grant(cluster, api.rights)
        for name in ("asr", "tts"):
            api.registry.create("namespaces", {"metadata": {"name": name}})
    return api


def grant(api: Api, root: Path, namespaces: Sequence[str], said: list[str] | None = None) -> FileChange:
    """Do it as an installation does, and write the kubeconfig."""
    layout = Layout(root)
    with api.controller(), api.cluster() as cluster:
        change = app_limits_account.grant(
            cluster,
            api.rights,
            app_limits(namespaces),
            model=ResourceModel(),
            layout=layout,
            say=(said if said is not None else []).append,
            pace=PACE,
        )
    path = layout.at(change.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if change.content is not None:
        path.write_bytes(change.content)
    return change


def bindings(api: Api) -> list[str]:
    return sorted(one["metadata"]["namespace"] for one in api.registry.items("rolebindings"))


def left(api: Api) -> list[str]:
    """Return what there is of app limits, a kind each."""
    kinds = ("serviceaccounts", "secrets", "clusterroles", "clusterrolebindings", "roles", "rolebindings", "leases")
    policies = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    return [
        kind
        for kind in (*kinds, *policies)
        if any("limits" in one["metadata"]["name"] for one in api.registry.items(kind))
    ]


def test_twice_changes_nothing_and_keeps_the_kubeconfig(granted: Api, tmp_path: Path) -> None:
    first = grant(granted, tmp_path, ["*"])
    version = granted.registry.store.version
    assert grant(granted, tmp_path, ["*"]) == first
    assert granted.registry.store.version == version
    assert (first.path, first.mode) == (LIMITS_KUBECONFIG, 0o600)
    assert granted.registry.get("validatingadmissionpolicies", "", "edgegpu-limits")["metadata"]["labels"]


def test_the_bound_stands_before_what_it_bounds(granted: Api, tmp_path: Path) -> None:
    grant(granted, tmp_path, ["*"])
    made = [one for verb, one, _ in granted.calls() if verb == "patch"]
    limits_at = [i for i, one in enumerate(made) if one == "clusterrolebindings"]
    assert made.index("validatingadmissionpolicybindings") < limits_at[-1]


def test_another_choice_takes_the_one_before_away(granted: Api, tmp_path: Path) -> None:
    grant(granted, tmp_path, ["*"])
    everywhere = granted.registry.get("clusterrolebindings", "", "edgegpu-limits")
    assert everywhere["subjects"][0]["name"] == "edgegpu-limits"
    first = grant(granted, tmp_path, ["asr", "tts"])
    assert bindings(granted) == ["asr", "kube-system", "tts"]
    wide = [one["metadata"]["name"] for one in granted.registry.items("clusterrolebindings")]
    assert "edgegpu-limits" not in wide
    granted.registry.create("leases", {**LEASE, "metadata": {**LEASE["metadata"], "namespace": "kube-system"}})
    assert grant(granted, tmp_path, ["tts"]) == first
    assert bindings(granted) == ["kube-system", "tts"]
    assert "leases" in left(granted)
    assert grant(granted, tmp_path, []).absent
    assert left(granted) == []
    with granted.cluster() as cluster:
        assert len(accounts.present(cluster, granted.rights)) == len(granted.rights.items)


def test_what_is_not_there_is_left_out_and_said(granted: Api, tmp_path: Path) -> None:
    said: list[str] = []
    grant(granted, tmp_path, ["asr", "gone"], said)
    assert bindings(granted) == ["asr", "kube-system"]
    assert said == ["note: no app limits in gone: there is no such namespace; install again when there is"]


def test_without_a_policy_namespaces_have_to_be_named(granted: Api, tmp_path: Path) -> None:
    granted.server.settings.minor = 29
    said: list[str] = []
    assert grant(granted, tmp_path, ["*"], said).absent
    assert "before Kubernetes 1.30" in said[0]
    assert left(granted) == []
    assert not grant(granted, tmp_path, ["asr"]).absent
    assert bindings(granted) == ["asr", "kube-system"]
    assert "validatingadmissionpolicies" not in left(granted)


@pytest.mark.parametrize("namespaces", [["*"], ["asr", "tts"]])
def test_all_goes_with_the_accounts_whatever_was_chosen(granted: Api, tmp_path: Path, namespaces: list[str]) -> None:
    grant(granted, tmp_path, namespaces)
    granted.registry.create("leases", {**LEASE, "metadata": {**LEASE["metadata"], "namespace": "kube-system"}})
    with granted.cluster() as cluster:
        done = accounts.remove(cluster, app_limits_account.there(cluster, granted.rights, app_limits(())), pace=PACE)
    assert left(granted) == []
    bound = max(i for i, one in enumerate(done.gone) if "Binding" in one and "Admission" not in one and "limits" in one)
    assert bound < done.gone.index("ValidatingAdmissionPolicyBinding edgegpu-limits")
    assert done.gone[-1] == "Namespace edgegpu"


def test_a_dry_run_names_them(granted: Api) -> None:
    found = of_install(
        granted.cluster, granted.rights, gpu=[], extender="", by="1", limits=app_limits(["asr"]), model=ResourceModel()
    )
    change = {one.name: one.change for one in found.objects}
    assert change["RoleBinding asr/edgegpu-limits"] == "new"
    assert change["ValidatingAdmissionPolicy edgegpu-limits"] == "new"
    assert change["Namespace edgegpu"] == "as it is"


def test_the_installer_and_the_agent_mean_the_same_account() -> None:
    assert rbac.ACCOUNT == Account.LIMITS
    assert rbac.EVERYWHERE == app_limits_account.EVERYWHERE
