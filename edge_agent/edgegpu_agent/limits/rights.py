"""What the agent may do in the cluster for app limits: an account, roles for chosen namespaces, a policy as a bound.

Pure. The policy needs Kubernetes 1.30; on an older one the roles hold and nothing bounds what is patched in a workload.
"""

from collections.abc import Sequence

from edgegpu_agent.kube import Json
from edgegpu_agent.limits.change import ASIDE
from edgegpu_agent.limits.lease import NAME as LEASE
from edgegpu_core.model import ResourceModel

ACCOUNT = "edgegpu-limits"
HOME = "edgegpu"
EVERYWHERE = "*"
POLICY_FROM = (1, 30)
"""The first Kubernetes that has ValidatingAdmissionPolicy for good."""

_SYSTEM = "kube-system"
_RBAC = "rbac.authorization.k8s.io"
_WORKLOADS = ["deployments", "statefulsets", "daemonsets"]
_READ = ["get", "list"]


def manifests(namespaces: Sequence[str], *, model: ResourceModel, with_policy: bool = True) -> tuple[Json, ...]:
    """Return the objects, each after what it names; the namespace `edgegpu` is there already.

    Args:
        namespaces: where apps may be changed; `*` is all of them but kube-system, which only the policy leaves out.
        model: resource names, which alone may be written.
        with_policy: whether the cluster is new enough for the policy.

    Raises:
        ValueError: kube-system is among the namespaces, or all are meant and nothing keeps kube-system out.
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
        *((_policy(model), _policy_binding()) if with_policy else ()),
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
    """Return what must be seen to judge: who holds what on which node, and which cluster this is."""
    return [_rule("", ["pods", "nodes"], _READ), _rule("", ["namespaces"], ["get"], [_SYSTEM])]


def _change() -> list[Json]:
    """Return what is needed in a chosen namespace."""
    return [
        _rule("apps", _WORKLOADS, ["get", "list", "patch"]),
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
        # quotas and autoscalers of kube-system may then be read as well; no workload there may be changed
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


def _policy(model: ResourceModel) -> Json:
    rules = [
        _matched("apps", _WORKLOADS, ["UPDATE"]),
        _matched("coordination.k8s.io", ["leases"], ["CREATE"]),
    ]
    user = f"system:serviceaccount:{HOME}:{ACCOUNT}"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "edgegpu-limits"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "the-agent", "expression": f"request.userInfo.username == '{user}'"}],
            "variables": _variables(model),
            "validations": [{"expression": one, "message": f"edgegpu: {said}"} for one, said in _validations()],
        },
    }


def _policy_binding() -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "edgegpu-limits"},
        "spec": {"policyName": "edgegpu-limits", "validationActions": ["Deny"]},
    }


def _matched(group: str, resources: list[str], operations: list[str]) -> Json:
    return {"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": operations}


def _variables(model: ResourceModel) -> list[Json]:
    ours = f"['{model.memory_resource}', '{model.core_resource}']"
    lease = "request.resource.resource == 'leases'"
    pairs = {
        "lease": lease,
        "ours": ours,
        "old": "variables.lease ? {} : oldObject.spec",
        "new": "variables.lease ? {} : object.spec",
        "oldPod": "variables.lease ? {} : oldObject.spec.template.spec",
        "newPod": "variables.lease ? {} : object.spec.template.spec",
        "oldNotes": "!variables.lease && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
        "newNotes": "!variables.lease && has(object.metadata.annotations) ? object.metadata.annotations : {}",
        # while its way of replacing pods is put aside, or is put back
        "aside": f"'{ASIDE}' in variables.oldNotes || '{ASIDE}' in variables.newNotes",
    }
    return [{"name": name, "expression": text} for name, text in pairs.items()]


def _same(new: str, old: str, *, but: str) -> str:
    """Return the expression: two maps are the same, some of their keys (`but`, a list) left out."""
    return (
        f"{new}.all(k, k in {but} || (k in {old} && {new}[k] == {old}[k])) && "
        f"{old}.all(k, k in {but} || k in {new})"
    )  # fmt: skip


def _validations() -> list[tuple[str, str]]:
    fields = "['template', 'strategy', 'updateStrategy', 'replicas']"
    workload = [
        ("request.namespace != 'kube-system'", "apps in kube-system are never changed"),
        (_same("variables.new", "variables.old", but=fields), "only limits may be changed in a workload"),
        (_same("object.spec.template", "oldObject.spec.template", but="['spec']"), "a template's metadata is not ours"),
        (
            _same("variables.newPod", "variables.oldPod", but="['initContainers', 'containers']"),
            "pods stay as they are",
        ),
        *((_containers(part), f"of {part} only limits may be changed") for part in ("containers", "initContainers")),
        (_annotations(), "only edgegpu's own annotations may be changed"),
        (_labels(), "labels may not be changed"),
        (_way(), "how pods are replaced may change during an interruption alone"),
        (_replicas(), "replicas may change during an interruption alone, and back to what they were"),
    ]
    found = [(f"variables.lease || ({one})", said) for one, said in workload]
    return [*found, (f"!variables.lease || object.metadata.name == '{LEASE}'", "no lease but its own")]


def _containers(part: str) -> str:
    """Return the expression: the same containers, and of their resources only ours may differ."""
    new = f"('{part}' in variables.newPod ? variables.newPod['{part}'] : [])"
    old = f"('{part}' in variables.oldPod ? variables.oldPod['{part}'] : [])"
    amounts = " && ".join(
        _same(
            f"('resources' in c && '{kind}' in c.resources ? c.resources['{kind}'] : {{}})",
            f"('resources' in o && '{kind}' in o.resources ? o.resources['{kind}'] : {{}})",
            but="variables.ours",
        )
        for kind in ("limits", "requests")
    )
    claims = "('resources' in c && 'claims' in c.resources) == ('resources' in o && 'claims' in o.resources)"
    one = f"o.name == c.name && {_same('c', 'o', but=repr(['resources']))} && {amounts} && {claims}"
    return f"{new}.size() == {old}.size() && {new}.all(c, {old}.exists(o, {one}))"


def _annotations() -> str:
    new, old = "variables.newNotes", "variables.oldNotes"
    return (
        f"{new}.all(k, k.startsWith('edgegpu.io/') || (k in {old} && {new}[k] == {old}[k])) && "
        f"{old}.all(k, k.startsWith('edgegpu.io/') || k in {new})"
    )


def _labels() -> str:
    def labels(which: str) -> str:
        return f"(has({which}.metadata.labels) ? {which}.metadata.labels : {{}})"

    return f"{labels('object')} == {labels('oldObject')}"


def _way() -> str:
    def way(which: str) -> str:
        return (
            f"('strategy' in variables.{which} ? variables.{which}['strategy'] : "
            f"'updateStrategy' in variables.{which} ? variables.{which}['updateStrategy'] : {{}})"
        )

    return f"variables.aside || {way('new')} == {way('old')}"


def _replicas() -> str:
    def count(which: str) -> str:
        return f"('replicas' in variables.{which} ? variables.{which}['replicas'] : -1)"

    def kept(which: str) -> str:
        return f"'{{\"replicas\":' + string({count(which)}) + '}}'"

    less = f"{count('new')} < {count('old')}"
    down = f"{less} && '{ASIDE}' in variables.newNotes && variables.newNotes['{ASIDE}'] == {kept('old')}"
    up = f"'{ASIDE}' in variables.oldNotes && variables.oldNotes['{ASIDE}'] == {kept('new')}"
    return f"{count('new')} == {count('old')} || ({down}) || ({up})"
