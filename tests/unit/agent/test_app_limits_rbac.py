"""The manifests of the agent's rights: what is granted where, and nothing beside it."""

from typing import Any

import pytest

from edgegpu_agent.app_limits.rbac import ACCOUNT, manifests
from edgegpu_core.model import ResourceModel

MODEL = ResourceModel(memory_resource="acme.io/mem", core_resource="acme.io/core")


def of_kind(found: tuple[dict[str, Any], ...], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] == kind]


def test_workloads_may_be_patched_in_the_chosen_namespaces_alone() -> None:
    found = manifests(["b", "a", "a"], model=MODEL)
    bound = {
        (one["roleRef"]["name"], one["metadata"].get("namespace"))
        for one in found
        if one["kind"] in {"RoleBinding", "ClusterRoleBinding"}
    }
    assert bound == {
        ("edgegpu-limits", "a"),
        ("edgegpu-limits", "b"),
        ("edgegpu-limits-see", None),
        ("edgegpu-limits-lease", "kube-system"),
    }
    rules = [rule for one in found for rule in one.get("rules", ())]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "patch", "create", "update"}
    assert [rule["resources"] for rule in rules if "watch" in rule["verbs"]] == [
        ["pods"],
        ["deployments", "statefulsets", "daemonsets"],
    ]
    assert [rule["resources"] for rule in rules if "patch" in rule["verbs"]] == [
        ["deployments", "statefulsets", "daemonsets"]
    ]
    assert [rule["resources"] for rule in rules if {"create", "update"} & set(rule["verbs"])] == [["leases"]] * 2
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
    subjects = {one["subjects"][0]["name"] for one in found if "subjects" in one}
    assert subjects == {ACCOUNT}


def test_the_policy_names_the_configured_resources_and_the_account() -> None:
    [policy] = of_kind(manifests(["a"], model=MODEL), "ValidatingAdmissionPolicy")
    text = str(policy)
    assert "acme.io/mem" in text
    assert "vcuda" not in text
    assert f"system:serviceaccount:edgegpu:{ACCOUNT}" in text
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_an_older_cluster_gets_no_policy_and_so_never_everything() -> None:
    assert not of_kind(manifests(["a"], model=MODEL, with_policy=False), "ValidatingAdmissionPolicy")
    with pytest.raises(ValueError, match=r"before Kubernetes 1\.30"):
        manifests(["*"], model=MODEL, with_policy=False)
    everywhere = manifests(["*"], model=MODEL)
    assert len(of_kind(everywhere, "ClusterRoleBinding")) == 2
    with pytest.raises(ValueError, match="kube-system"):
        manifests(["kube-system"], model=MODEL)
