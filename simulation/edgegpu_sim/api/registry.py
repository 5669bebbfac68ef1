"""The API's resources over the store: rules for create, patch, deletion, binding and eviction."""

import random
from dataclasses import dataclass

from edgegpu_sim.api import podrules
from edgegpu_sim.api.errors import already_exists, bad_request, down, invalid, not_found
from edgegpu_sim.api.objects import Json, ObjectSelector, merge, now_text, strategic
from edgegpu_sim.api.store import Key, ObjectStore, StoreEvent

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """The rules of one resource of the API."""

    version: str
    kind: str
    namespaced: bool = True


KINDS = {
    "pods": ResourceRules("v1", "Pod"),
    "events": ResourceRules("v1", "Event"),
    "nodes": ResourceRules("v1", "Node", namespaced=False),
    "namespaces": ResourceRules("v1", "Namespace", namespaced=False),
    "deployments": ResourceRules("apps/v1", "Deployment"),
    "statefulsets": ResourceRules("apps/v1", "StatefulSet"),
    "daemonsets": ResourceRules("apps/v1", "DaemonSet"),
    "resourcequotas": ResourceRules("v1", "ResourceQuota"),
    "horizontalpodautoscalers": ResourceRules("autoscaling/v1", "HorizontalPodAutoscaler"),
    "secrets": ResourceRules("v1", "Secret"),
    "serviceaccounts": ResourceRules("v1", "ServiceAccount"),
    "leases": ResourceRules("coordination.k8s.io/v1", "Lease"),
    "clusterroles": ResourceRules("rbac.authorization.k8s.io/v1", "ClusterRole", namespaced=False),
    "clusterrolebindings": ResourceRules("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", namespaced=False),
    "roles": ResourceRules("rbac.authorization.k8s.io/v1", "Role"),
    "rolebindings": ResourceRules("rbac.authorization.k8s.io/v1", "RoleBinding"),
    "validatingadmissionpolicies": ResourceRules(
        "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", namespaced=False
    ),
    "validatingadmissionpolicybindings": ResourceRules(
        "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", namespaced=False
    ),
    "selfsubjectaccessreviews": ResourceRules("authorization.k8s.io/v1", "SelfSubjectAccessReview", namespaced=False),
}


class Registry:
    """The API's resources; every method may be called from any thread and raises ApiError."""

    def __init__(self, *, random_names: random.Random, history: int = 20_000, strict_namespaces: bool = False) -> None:
        """Begin with an empty store; with `strict_namespaces` only created namespaces exist."""
        self.store = ObjectStore(history=history)
        self.is_up = True
        self._random = random_names
        self._strict = strict_namespaces
        self.create("namespaces", {"metadata": {"name": "kube-system"}})

    def create(self, resource: str, item: Json) -> Json:
        """Create an object and return it as stored."""
        self._check_up()
        kind = KINDS[resource]
        metadata = dict(item.get("metadata") or {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise bad_request("name or generateName is required")
            metadata["name"] = metadata["generateName"] + self.suffix()
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
            self._ensure_namespace(metadata["namespace"])
        for foreign in ("uid", "resourceVersion", "deletionTimestamp"):
            metadata.pop(foreign, None)
        metadata["creationTimestamp"] = now_text()
        item = {**item, "apiVersion": kind.version, "kind": kind.kind, "metadata": metadata}
        if resource == "pods":
            item = podrules.prepare(item)
        elif resource == "deployments":
            metadata["generation"] = 1
            item = {**item, "spec": {"replicas": 1, **item["spec"]}, "status": {}}
        key = _key(resource, metadata.get("namespace", ""), metadata["name"])
        with self.store.lock:
            if self.store.get(key) is not None:
                raise already_exists(resource, metadata["name"])
            return self.store.put(key, item)

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """Return an object; unless namespaces are strict, every namespace exists when it is read."""
        self._check_up()
        if resource == "namespaces" and not self._strict:
            self._ensure_namespace(name)
        found = self.store.get(_key(resource, namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def items(self, resource: str, namespace: str = "", selector: ObjectSelector | None = None) -> list[Json]:
        """Return the objects that match a selector."""
        self._check_up()
        found = self.store.items(resource, namespace)
        return [item for item in found if selector is None or selector.matches(item)]

    def patch(self, resource: str, namespace: str, name: str, change: Json, *, sub: str = "") -> Json:
        """Apply a merge patch; a `metadata.uid` or `resourceVersion` in it is a precondition."""
        with self.store.lock:
            old = self.get(resource, namespace, name)
            return self._write(resource, old, merge(old, _without_identity(old, change, resource)), sub=sub)

    def patch_strategic(self, resource: str, namespace: str, name: str, change: Json, *, sub: str = "") -> Json:
        """Apply a strategic merge patch: containers are merged by name; the preconditions are as for `patch`."""
        with self.store.lock:
            old = self.get(resource, namespace, name)
            return self._write(resource, old, strategic(old, _without_identity(old, change, resource)), sub=sub)

    def apply(self, resource: str, namespace: str, name: str, item: Json) -> Json:
        """Create or change an object by server-side apply; fields that an earlier apply set and this omits stay."""
        with self.store.lock:
            if self.store.get(_key(resource, namespace, name)) is None:
                return self.create(resource, item)
            return self.patch(resource, namespace, name, item)

    def replace(self, resource: str, namespace: str, name: str, item: Json, *, sub: str = "") -> Json:
        """Replace an object by another."""
        with self.store.lock:
            old = self.get(resource, namespace, name)
            asked = item.get("metadata") or {}
            podrules.check_uid(resource, old, asked.get("uid"))
            podrules.check_version(resource, old, asked.get("resourceVersion"))
            kept = {k: v for k, v in old["metadata"].items() if k not in {"labels", "annotations"}}
            return self._write(resource, old, {**old, **item, "metadata": {**asked, **kept}}, sub=sub)

    def delete(self, resource: str, namespace: str, name: str, options: Json | None = None) -> Json:
        """Delete an object; a pod on a node waits for its kubelet, unless its grace is 0."""
        options = options or {}
        with self.store.lock:
            old = self.get(resource, namespace, name)
            asked = options.get("preconditions") or {}
            podrules.check_uid(resource, old, asked.get("uid"))
            podrules.check_version(resource, old, asked.get("resourceVersion"))
            left = podrules.deleted(old, options) if resource == "pods" else None
            if left is None:
                if resource == "namespaces":
                    self._empty(name)
                return self.store.remove(_key(resource, namespace, name))
            return left if left is old else self.store.put(_key(resource, namespace, name), left)

    def bind(self, namespace: str, name: str, binding: Json) -> Json:
        """Write a binding's node and annotations into a pod in one write."""
        with self.store.lock:
            old = self.get("pods", namespace, name)
            return self.store.put(_key("pods", namespace, name), podrules.bound(old, binding))

    def evict(self, namespace: str, name: str, eviction: Json) -> Json:
        """Delete a pod by its eviction subresource (there are no disruption budgets here)."""
        return self.delete("pods", namespace, name, eviction.get("deleteOptions"))

    def changes(self, version: int) -> list[StoreEvent]:
        """Return all writes after a version."""
        self._check_up()
        return self.store.since(version)

    def event(self, involved: Json, *, reason: str, message: str, kind: str = "Normal", source: str = "") -> None:
        """Write an Event about an object, or count one more of the same."""
        metadata = involved["metadata"]
        namespace = metadata.get("namespace") or "default"
        about = {
            "kind": involved["kind"],
            "apiVersion": involved["apiVersion"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {"reason": reason, "message": message[:1024], "type": kind, "source": {"component": source}}
        now = now_text()
        with self.store.lock:
            for old in self.items("events", namespace):
                if old["involvedObject"] == about and all(old[key] == value for key, value in body.items()):
                    self.store.put(
                        _key("events", namespace, old["metadata"]["name"]),
                        {**old, "count": old["count"] + 1, "lastTimestamp": now},
                    )
                    return
            named = {"namespace": namespace, "generateName": f"{metadata['name']}."}
            times = {"count": 1, "firstTimestamp": now, "lastTimestamp": now}
            self.create("events", {"metadata": named, "involvedObject": about, **body, **times})

    def suffix(self, length: int = 5) -> str:
        """Return random characters, like those that the API server appends to `generateName`."""
        return "".join(self._random.choices(_LETTERS, k=length))

    def _write(self, resource: str, old: Json, new: Json, *, sub: str) -> Json:
        if sub == "status":
            new = {**new, "spec": old.get("spec")} if "spec" in old else new
        elif "status" in old:
            new = {**new, "status": old["status"]}
        if resource == "pods":
            podrules.check_change(old, new)
        metadata = old["metadata"]
        if resource == "deployments" and new["spec"] != old["spec"]:
            new["metadata"] = {**new["metadata"], "generation": metadata["generation"] + 1}
        if new == old:
            return old  # a real API server writes nothing either
        return self.store.put(_key(resource, metadata.get("namespace", ""), metadata["name"]), new)

    def _empty(self, namespace: str) -> None:
        for resource, kind in KINDS.items():
            for item in self.store.items(resource, namespace) if kind.namespaced else ():
                self.store.remove(_key(resource, namespace, item["metadata"]["name"]))

    def _ensure_namespace(self, name: str) -> None:
        with self.store.lock:
            if self.store.get(_key("namespaces", "", name)) is None:
                if self._strict:
                    raise not_found("namespaces", name)
                status = {"phase": "Active"}
                metadata = {"name": name, "creationTimestamp": now_text()}
                item = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": status}
                self.store.put(_key("namespaces", "", name), item)

    def _check_up(self) -> None:
        if not self.is_up:
            raise down()


def _key(resource: str, namespace: str, name: str) -> Key:
    return (resource, namespace if KINDS[resource].namespaced else "", name)


def _without_identity(old: Json, change: Json, resource: str) -> Json:
    asked = change.get("metadata") or {}
    uid = asked.get("uid") or old["metadata"]["uid"]
    if uid != old["metadata"]["uid"]:  # no conflict: a real 1.33 reports a change of the field
        why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
        raise invalid(KINDS[resource].kind, old["metadata"]["name"], why)
    podrules.check_version(resource, old, asked.get("resourceVersion"))
    kept = {"uid", "resourceVersion", "name", "namespace", "creationTimestamp"}
    return {**change, "metadata": {k: v for k, v in asked.items() if k not in kept}}
