"""The agent's rights in the cluster for app limits: an account, roles for chosen namespaces, a policy as a bound.

Pure. The policy needs Kubernetes 1.30. On an older version only the roles apply, and nothing limits which fields of a
workload are patched.
"""

from collections.abc import Sequence

from edgegpu_agent.app_limits.lease import NAME as LEASE
from edgegpu_agent.app_limits.policy import WORKLOADS, policy
from edgegpu_base.kube import Json
from edgegpu_core.model import ResourceModel

ACCOUNT = "edgegpu-limits"
HOME = "edgegpu"
EVERYWHERE = "*"

_SYSTEM = "kube-system"
_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list"]
_FOLLOW = [*_READ, "watch"]


def manifests(namespaces: Sequence[str], *, model: ResourceModel, with_policy: bool = True) -> tuple[Json, ...]:
    """Return the objects, each after those that it names; the namespace `edgegpu` must exist.

    Args:
        namespaces: where apps may be changed; `*` is all but kube-system, which only the policy keeps out.
        model: the names of the resources, the only ones that may be written.
        with_policy: whether the cluster is new enough for the policy.

    Raises:
        ValueError: kube-system is among the namespaces, or `*` is, and no policy keeps kube-system out.
    """
    if _SYSTEM in namespaces:
        raise ValueError(f"cannot allow app limits in {_SYSTEM}: leave it out")
    if EVERYWHERE in namespaces and not with_policy:
        raise ValueError("cannot allow app limits everywhere before Kubernetes 1.30: name the namespaces")
    return (
        *_account(),
        _cluster_role("edgegpu-limits-see", _see()),
        _bound("ClusterRoleBinding", "edgegpu-limits-see", "edgegpu-limits-see"),
        _role_in_system(),
        _bound("RoleBinding", "edgegpu-limits-lease", "edgegpu-limits-lease", namespace=_SYSTEM, of="Role"),
        _cluster_role("edgegpu-limits", _change()),
        *_bindings(namespaces),
        *(policy(model, user=f"system:serviceaccount:{HOME}:{ACCOUNT}") if with_policy else ()),
    )


def _account() -> tuple[Json, Json]:
    metadata = {"name": ACCOUNT, "namespace": HOME}
    token = {**metadata, "annotations": {"kubernetes.io/service-account.name": ACCOUNT}}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": token},
    )


def _rule(group: str, resources: list[str], verbs: list[str], names: Sequence[str] = ()) -> Json:
    rule: Json = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": list(names)} if names else rule


def _see() -> list[Json]:
    """Return the rules for what a verdict reads: which pod holds what on which node, and which cluster this is."""
    return [_rule("", ["pods"], _FOLLOW), _rule("", ["nodes"], _READ), _rule("", ["namespaces"], ["get"], [_SYSTEM])]


def _change() -> list[Json]:
    """Return the rules for a chosen namespace."""
    return [
        _rule("apps", WORKLOADS, [*_FOLLOW, "patch"]),
        _rule("autoscaling", ["horizontalpodautoscalers"], _READ),
        _rule("", ["resourcequotas"], _READ),
    ]


def _role_in_system() -> Json:
    group = "coordination.k8s.io"
    rules = [_rule(group, ["leases"], ["create"]), _rule(group, ["leases"], ["get", "update"], [LEASE])]
    metadata = {"name": "edgegpu-limits-lease", "namespace": _SYSTEM}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}


def _cluster_role(name: str, rules: list[Json]) -> Json:
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _bindings(namespaces: Sequence[str]) -> list[Json]:
    if EVERYWHERE in namespaces:
        # this also allows reading quotas and autoscalers of kube-system; the policy forbids changing workloads there
        return [_bound("ClusterRoleBinding", "edgegpu-limits", "edgegpu-limits")]
    return [_bound("RoleBinding", "edgegpu-limits", "edgegpu-limits", namespace=one) for one in sorted(set(namespaces))]


def _bound(kind: str, name: str, role: str, *, namespace: str = "", of: str = "ClusterRole") -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _RBAC, "kind": of, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}],
    }
