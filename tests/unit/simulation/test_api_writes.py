"""What the small API does with an installer's writes: applied objects, patches, namespaces that end."""

from __future__ import annotations

import random

import pytest

from edgegpu_sim.api import ApiError, Registry

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "kubernetes.io/service-account-token",
    "metadata": {
        "name": "s",
        "namespace": "space",
        "annotations": {"kubernetes.io/service-account.name": "who"},
    },
}


@pytest.fixture
def registry() -> Registry:
    registry = Registry(random_names=random.Random(1), strict_namespaces=True)
    registry.create("namespaces", {"metadata": {"name": "space"}})
    return registry


def test_apply_makes_and_then_changes(registry: Registry) -> None:
    role = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]}
    first = registry.apply("clusterroles", "", "r", role)
    assert registry.apply("clusterroles", "", "r", role) == first
    assert registry.apply("clusterroles", "", "r", {**role, "rules": []})["rules"] == []


def test_a_strict_namespace_is_made_and_takes_its_objects_along(registry: Registry) -> None:
    registry.apply("secrets", "space", "s", SECRET)
    with pytest.raises(ApiError, match='namespaces "other" not found'):
        registry.create("secrets", {"metadata": {"name": "s", "namespace": "other"}})
    registry.delete("namespaces", "", "space")
    assert registry.items("secrets") == []
    with pytest.raises(ApiError, match="not found"):
        registry.get("namespaces", "", "space")


def test_a_strategic_patch_merges_containers_by_name(registry: Registry) -> None:
    limits = {"a/b": "4", "c/d": "1"}
    containers = [{"name": "main", "image": "i", "resources": {"limits": limits}}, {"name": "side", "image": "j"}]
    spec = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    app = {
        "metadata": {"name": "app", "namespace": "space"},
        "spec": {**spec, "template": {"spec": {"containers": containers}}},
    }
    old = registry.create("deployments", app)
    part = {"containers": [{"name": "main", "resources": {"limits": {"a/b": "9", "c/d": None}}}]}
    change = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}, "template": {"spec": part}}}
    new = registry.patch_strategic("deployments", "space", "app", change)
    main = {"name": "main", "image": "i", "resources": {"limits": {"a/b": "9"}}}
    assert new["spec"]["template"]["spec"]["containers"] == [main, containers[1]]
    assert new["spec"]["strategy"] == {"type": "Recreate"}
    assert old["spec"]["template"]["spec"]["containers"] == containers
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, **change}
    with pytest.raises(ApiError, match="the object has been modified"):
        registry.patch_strategic("deployments", "space", "app", stale)
