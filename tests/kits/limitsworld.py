"""A cluster of one node played in steps over the small API: controllers, a scheduler that knows cards, a kubelet."""

from collections.abc import Callable, Mapping
from copy import deepcopy

from kits.limitsapi import Api, Json, path_of

from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import free_after
from edgegpu_core.limits.workload import fenceposts
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, write_report
from edgegpu_core.placement import Placement, Policy, Share, place, plan_pod
from edgegpu_core.podview import gpu_containers
from edgegpu_core.request import ImpossibleRequest

NODE = "box-1"
MODEL = ResourceModel()
CLUSTER = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
PODS = "/api/v1/namespaces/default/pods"
HASH = "template"


class World:
    """One node with cards; `step` lets everything that is there act once."""

    def __init__(self, api: Api, units: tuple[int, ...], others: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.api = api
        self.slots = tuple(CardCapacity(f"GPU-{at}", str(at), count) for at, count in enumerate(units))
        self.held: dict[str, tuple[Share, ...]] = {
            uid: (Share(f"GPU-{card}", amount, 1),) for uid, (card, amount) in (others or {}).items()
        }
        self.broken = False
        """Whether images cannot be pulled."""
        self.kubelet_units: int | None = None
        """The units that kubelet offers while it has not caught up with the plugin's report."""
        self.steps = 0
        self.at: dict[int, Callable[[], None]] = {}
        """What happens at a step."""
        self._made = 0
        api.store.put("/api/v1/namespaces/kube-system", {"metadata": {"name": "kube-system", "uid": CLUSTER}})
        self._report()

    def add(self, item: Json) -> None:
        """Put a workload there and let it come up."""
        self.api.store.put(path_of(item["kind"], item["metadata"]["name"]), deepcopy(item))
        for _ in range(6):
            self.step()

    def workload(self, kind: str, name: str) -> Json:
        return self.api.store.objects[path_of(kind, name)]

    def pods(self, name: str = "") -> list[Json]:
        found = self.api.store.items(PODS)
        return [pod for pod in found if not name or pod["metadata"]["labels"].get("app") == name]

    def running(self, name: str) -> list[int]:
        """Return the units of an app's ready pods."""
        return sorted(
            gpu[0].request.memory_units if (gpu := gpu_containers(pod["spec"], MODEL)) else 0
            for pod in self.pods(name)
            if pod["status"].get("ready")
        )

    def step(self) -> None:
        """Let everything act once."""
        with self.api.store.lock:
            self.steps += 1
            self.at.pop(self.steps, lambda: None)()
            for pod in self.pods():
                if pod["metadata"].get("deletionTimestamp"):
                    self.api.store.objects.pop(f"{PODS}/{pod['metadata']['name']}")
                    self.held.pop(pod["metadata"]["uid"], None)
            for path, item in list(self.api.store.objects.items()):
                if path.startswith("/apis/apps/"):
                    {"Deployment": self._deployment, "StatefulSet": self._stateful}[item["kind"]](item)
            for pod in self.pods():
                self._schedule(pod)
            for path, item in list(self.api.store.objects.items()):
                if path.startswith("/apis/apps/"):
                    self._status(path, item)
            self._report()

    def _deployment(self, item: Json) -> None:
        spec = item["spec"]
        if spec.get("paused"):
            return
        replicas, now = spec.get("replicas", 1), _template(item)
        pods = [p for p in self.pods(item["metadata"]["name"]) if not p["metadata"].get("deletionTimestamp")]
        new = [p for p in pods if p["metadata"]["labels"][HASH] == now]
        old = [p for p in pods if p["metadata"]["labels"][HASH] != now]
        leaving = len(self.pods(item["metadata"]["name"])) - len(pods)
        for pod in new[replicas:]:
            self._end(pod)
        strategy = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            for pod in old:
                self._end(pod)
            count = 0 if old or leaving else replicas - len(new)
        else:
            surge, unavailable = fenceposts(strategy, replicas)
            count = min(replicas - len(new), replicas + surge - len(pods))
            ready = sum(bool(p["status"].get("ready")) for p in new)
            for pod in old[: max(0, len(old) + ready - (replicas - unavailable))]:
                self._end(pod)
        for _ in range(count):
            self._made += 1
            self._make(
                item,
                f"{item['metadata']['name']}-{self._made}",
                {"kind": "ReplicaSet", "name": f"{item['metadata']['name']}-rs"},
            )

    def _stateful(self, item: Json) -> None:
        name, spec = item["metadata"]["name"], item["spec"]
        replicas, now = spec.get("replicas", 1), _template(item)
        there = {int(p["metadata"]["name"].rpartition("-")[2]): p for p in self.pods(name)}
        owner = {"kind": "StatefulSet", "name": name, "uid": item["metadata"]["uid"]}
        for ordinal in sorted(there, reverse=True):
            if ordinal >= replicas:
                self._end(there[ordinal])
                return
        for ordinal in range(replicas):
            if ordinal not in there:
                self._make(item, f"{name}-{ordinal}", owner)
                return
            if not there[ordinal]["status"].get("ready"):
                return  # it waits, for ever if need be
        for ordinal in sorted(there, reverse=True):
            if there[ordinal]["metadata"]["labels"][HASH] != now:
                self._end(there[ordinal])
                return

    def _make(self, item: Json, name: str, owner: Json) -> None:
        labels = {**item["spec"]["template"]["metadata"]["labels"], HASH: _template(item)}
        pod = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": labels,
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": deepcopy(item["spec"]["template"]["spec"]),
            "status": {"phase": "Pending"},
        }
        self.api.store.put(f"{PODS}/{name}", pod)

    def _end(self, pod: Json) -> None:
        stored = self.api.store.objects[f"{PODS}/{pod['metadata']['name']}"]
        stored["metadata"]["deletionTimestamp"] = "now"
        stored["status"]["ready"] = False

    def _schedule(self, pod: Json) -> None:
        stored, uid = self.api.store.objects[f"{PODS}/{pod['metadata']['name']}"], pod["metadata"]["uid"]
        if stored["metadata"].get("deletionTimestamp"):
            return
        if uid not in self.held and not stored["spec"].get("nodeName"):
            why = self._place(uid, stored["spec"])
            if why:
                said = f"0/1 nodes are available: 1 {why}."
                stored["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": said}]
                return
            stored["spec"]["nodeName"] = NODE
            stored["status"] = {"phase": "Pending"}
            return
        waiting = [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}] if self.broken else []
        stored["status"] = {
            "phase": "Pending" if waiting else "Running",
            "ready": not waiting,
            "containerStatuses": waiting,
        }

    def _place(self, uid: str, spec: Json) -> str:
        containers = gpu_containers(spec, MODEL)
        if not containers:
            return ""
        plan = plan_pod(containers, MODEL)
        if isinstance(plan, ImpossibleRequest):
            return plan.reason
        placed = place(plan, free_after(self.slots, self.held.values()), Policy.FIRST_FIT)
        if not isinstance(placed, Placement):
            return placed.reason
        self.held[uid] = placed.held
        return ""

    def _status(self, path: str, item: Json) -> None:
        name, now, spec = item["metadata"]["name"], _template(item), item["spec"]
        pods = [p for p in self.pods(name) if not p["metadata"].get("deletionTimestamp")]
        fresh = [p for p in pods if p["metadata"]["labels"][HASH] == now]
        ready = sum(bool(p["status"].get("ready")) for p in pods)
        self.api.store.objects[path]["status"] = {
            "observedGeneration": item["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": len(fresh),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentRevision": now if len(fresh) == len(pods) == spec.get("replicas", 1) else "old",
            "updateRevision": now,
        }

    def _report(self) -> None:
        report = NodeReport(
            boot="b", generation=self.steps, time="t", policy=Policy.FIRST_FIT, unit_mib=256, core_required=True,
            slots=self.slots, held=self.held,
        )  # fmt: skip
        behind = self.kubelet_units
        units = str(sum(slot.units for slot in self.slots) if behind is None else behind)
        node = {
            "metadata": {"name": NODE, "annotations": {REPORT_ANNOTATION: write_report(report)}},
            "status": {"allocatable": {MODEL.memory_resource: units, MODEL.core_resource: "100"}},
        }
        self.api.store.put(f"/api/v1/nodes/{NODE}", node)


def _template(item: Json) -> str:
    return str(hash(str(item["spec"]["template"]["spec"])))
