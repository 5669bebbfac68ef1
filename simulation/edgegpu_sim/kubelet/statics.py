"""Static pods: from a list on the node, with kubelet's own UID, shown in the API by a mirror pod."""

import hashlib
import json

from edgegpu_sim.api import ApiError, Json, Registry
from edgegpu_sim.api.podrules import prepare

HASH = "kubernetes.io/config.hash"
MIRROR = "kubernetes.io/config.mirror"
SOURCE = "kubernetes.io/config.source"


def static_pod(manifest: Json, node: str) -> Json:
    """Return the pod that kubelet makes from a manifest: its UID is a hash, its name ends with the node's."""
    uid = hashlib.md5(json.dumps([manifest, node], sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    metadata = manifest.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), HASH: uid, SOURCE: "file"}
    placed = {
        **metadata,
        "namespace": metadata.get("namespace", "default"),
        "name": f"{metadata['name']}-{node}",
        "uid": uid,
        "annotations": annotations,
        "creationTimestamp": None,
    }
    spec = {**manifest["spec"], "nodeName": node}
    return prepare({"apiVersion": "v1", "kind": "Pod", "metadata": placed, "spec": spec})


def is_mirror(pod: Json) -> bool:
    """Return whether an object of the API is the mirror of a static pod."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def mirror_of(registry: Registry, pod: Json) -> Json | None:
    """Return the mirror of a static pod, or None."""
    metadata = pod["metadata"]
    try:
        found = registry.get("pods", metadata["namespace"], metadata["name"])
    except ApiError as error:
        if error.reason != "NotFound":
            raise
        return None
    return found if (found["metadata"].get("annotations") or {}).get(MIRROR) == metadata["uid"] else None


def keep_mirrors(registry: Registry, statics: list[Json], mirrors: list[Json], *, node: str) -> None:
    """Create missing mirrors, and remove those that were deleted or whose static pod has gone."""
    uids = {pod["metadata"]["uid"] for pod in statics}
    for mirror in mirrors:
        metadata = mirror["metadata"]
        if metadata.get("deletionTimestamp") or metadata["annotations"][MIRROR] not in uids:
            registry.delete("pods", metadata["namespace"], metadata["name"], {"gracePeriodSeconds": 0})
    for pod in statics:
        if mirror_of(registry, pod) is None:
            _create_mirror(registry, pod, registry.get("nodes", "", node))


def _create_mirror(registry: Registry, pod: Json, node: Json) -> None:
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "controller": True}
    owner.update({"name": node["metadata"]["name"], "uid": node["metadata"]["uid"]})
    annotations = {**metadata["annotations"], MIRROR: metadata["uid"]}
    shown = {**metadata, "annotations": annotations, "ownerReferences": [owner]}
    try:
        registry.create("pods", {**pod, "metadata": shown})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
