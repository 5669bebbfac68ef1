"""A small Deployment controller that includes its ReplicaSets: it replaces failed pods and counts the new ones."""

import hashlib
import json
import threading
from collections import Counter

from edgegpu_sim.api import ApiError, Json, Registry

_TERMINAL = {"Succeeded", "Failed"}
_HASH = "pod-template-hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of name suffixes: SafeEncodeString in apimachinery's util/rand; readers of pod names rely on them."""

_LOOK_S = 0.5
_DOWN_S = 0.1


class Controllers:
    """The controller that keeps every Deployment's pods as in its spec, until it is stopped."""

    def __init__(self, registry: Registry, *, pace_s: float = 0.02) -> None:
        self._registry = registry
        self._pace_s = pace_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controllers")
        self.created: Counter[str] = Counter()
        """The number of pods made so far, by the UID of their Deployment; it shows a storm of pods."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._registry.store.wake()
        self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._stop.wait(self._pace_s):
            try:
                version = self._registry.store.version
                deployments = self._registry.items("deployments")
                for deployment in deployments:
                    self._tend(deployment)
                self._remove_orphans({d["metadata"]["uid"] for d in deployments})
            except ApiError as error:
                if error.reason == "ServiceUnavailable":
                    self._stop.wait(_DOWN_S)
                continue  # an object changed meanwhile: start again
            self._registry.store.wait(version, _LOOK_S, self._stop.is_set)

    def _tend(self, deployment: Json) -> None:
        spec, template = deployment["spec"], template_hash(deployment)
        pods = [p for p in self._registry.items("pods", deployment["metadata"]["namespace"]) if _owned(p, deployment)]
        new = [p for p in pods if p["metadata"]["labels"].get(_HASH) == template]
        old = [p for p in pods if p["metadata"]["labels"].get(_HASH) != template]
        active = sorted((p for p in new if _is_active(p)), key=_is_ready, reverse=True)
        strategy = (spec.get("strategy") or {}).get("type", "RollingUpdate")
        wanted = int(spec["replicas"])
        for pod in active[wanted:]:
            self._delete(pod)
        held_back = strategy == "Recreate" and any(p["status"].get("phase") not in _TERMINAL for p in old)
        for _ in range(0 if held_back else wanted - len(active)):
            self._create(deployment, template)
        ready = sum(_is_ready(p) for p in active)
        for pod in old:
            if strategy == "Recreate" or ready >= wanted or not _is_active(pod):
                self._delete(pod)
        self._report(deployment, pods=len([p for p in pods if _is_active(p)]), updated=len(active), ready=ready)

    def _create(self, deployment: Json, template: str) -> None:
        metadata, pod = deployment["metadata"], deployment["spec"]["template"]
        name = f"{metadata['name']}-{template}"
        meant = pod.get("metadata") or {}
        # The ReplicaSet is no object here; its owner reference has the Deployment's own UID.
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": metadata["uid"]}
        made = {
            **meant,
            "generateName": f"{name}-",
            "namespace": metadata["namespace"],
            "labels": {**(meant.get("labels") or {}), _HASH: template},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        made.pop("name", None)
        self._registry.create("pods", {"metadata": made, "spec": pod["spec"]})
        self.created[metadata["uid"]] += 1

    def _delete(self, pod: Json) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        try:
            options = {"preconditions": {"uid": metadata["uid"]}}
            self._registry.delete("pods", metadata["namespace"], metadata["name"], options)
        except ApiError as error:
            if error.reason != "NotFound":
                raise

    def _remove_orphans(self, deployments: set[str]) -> None:
        for pod in self._registry.items("pods"):
            owners = pod["metadata"].get("ownerReferences") or ()
            if any(o["kind"] == "ReplicaSet" and o["uid"] not in deployments for o in owners):
                self._delete(pod)

    def _report(self, deployment: Json, *, pods: int, updated: int, ready: int) -> None:
        metadata = deployment["metadata"]
        counts = {"replicas": pods, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready}
        status = {"observedGeneration": metadata["generation"], **counts}
        self._registry.patch("deployments", metadata["namespace"], metadata["name"], {"status": status}, sub="status")


def template_hash(deployment: Json) -> str:
    """Return the hash of a Deployment's pod template, by which its pods are distinguished."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(number))


def _owned(pod: Json, deployment: Json) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == deployment["metadata"]["uid"] for owner in owners)


def _is_active(pod: Json) -> bool:
    return pod["status"].get("phase") not in _TERMINAL and not pod["metadata"].get("deletionTimestamp")


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
