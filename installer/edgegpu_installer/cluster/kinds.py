"""The kinds of Kubernetes objects that the installer uses, and their paths in the API."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A resource of the API: `version` is an object's `apiVersion`, `plural` is the name in the API's paths."""

    version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, name: str = "", namespace: str = "", sub: str = "") -> str:
        """Return the path of an object or of its subresource; without a name, of the list (of all namespaces)."""
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        parts = [*(("namespaces", namespace) if self.namespaced and namespace else ()), self.plural, name, sub]
        return "/".join([root, *(quote(part, safe="") for part in parts if part)])


NAMESPACE = ObjectKind("v1", "Namespace", "namespaces", namespaced=False)
NODE = ObjectKind("v1", "Node", "nodes", namespaced=False)
POD = ObjectKind("v1", "Pod", "pods")
SECRET = ObjectKind("v1", "Secret", "secrets")
SERVICE_ACCOUNT = ObjectKind("v1", "ServiceAccount", "serviceaccounts")
CLUSTER_ROLE = ObjectKind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = ObjectKind(
    "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
ROLE = ObjectKind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = ObjectKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
POLICY = ObjectKind(
    "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
POLICY_BINDING = ObjectKind(
    "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
POLICIES = (POLICY, POLICY_BINDING)
ENDPOINTS = ObjectKind("v1", "Endpoints", "endpoints")
LEASE = ObjectKind("coordination.k8s.io/v1", "Lease", "leases")
ACCESS_REVIEW = ObjectKind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

_ALL = (
    *(NAMESPACE, NODE, POD, SECRET, SERVICE_ACCOUNT),
    *(CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING),
    *POLICIES,
    *(LEASE, ACCESS_REVIEW),
)


def kind_of(item: Json) -> ObjectKind:
    """Return the kind of an object, by its `apiVersion` and `kind`.

    Raises:
        ValueError: the installer does not know the kind.
    """
    asked = (item.get("apiVersion"), item.get("kind"))
    for kind in _ALL:
        if (kind.version, kind.kind) == asked:
            return kind
    raise ValueError(f"no kind that edgegpu installs: {asked[1]} of {asked[0]}")


def key_of(item: Json) -> tuple[ObjectKind, str, str]:
    """Return an object's kind, name and namespace, by which the API finds it."""
    return kind_of(item), name_of(item), namespace_of(item)


def name_of(item: Json) -> str:
    """Return an object's name."""
    return str((item.get("metadata") or {}).get("name", ""))


def namespace_of(item: Json) -> str:
    """Return an object's namespace; empty for a cluster-scoped object."""
    return str((item.get("metadata") or {}).get("namespace", ""))
