"""The embedded kubelet of one node, which admits and runs the pods of the API and of static manifests."""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_sim.api import ApiError, Json, ObjectSelector, Registry
from edgegpu_sim.api.errors import not_found
from edgegpu_sim.kubelet.admission import Rejection, allocate_pod, fits_node
from edgegpu_sim.kubelet.devicemanager import DeviceManager
from edgegpu_sim.kubelet.podresources import PodResourcesServer
from edgegpu_sim.kubelet.podworker import PodTimings, PodWorker
from edgegpu_sim.kubelet.registration import RegistrationServer
from edgegpu_sim.kubelet.reports import ApiReports, NodeStatus
from edgegpu_sim.kubelet.runtime import Runtime
from edgegpu_sim.kubelet.statics import is_mirror, keep_mirrors, mirror_of, static_pod

_BY_SOCKET = 37
"""The minor version from which on kubelet knows device plugins by their sockets."""
_TERMINAL = {"Succeeded", "Failed"}
_LOOK_S = 0.5
_DOWN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The settings of one node's kubelet."""

    node: str
    folder: Path
    """The folder that stands for /var/lib/kubelet."""
    labels: Mapping[str, str] = field(default_factory=dict)
    pace: PodTimings = field(default_factory=PodTimings)
    admission_delay_s: float = 0.25
    """The time from kubelet.sock to the first admission after a start; a plugin that registers later is too late."""
    status_period_s: float = 0.1
    grace_s: float = 300.0
    """How long the capacity of a plugin that has gone is kept."""
    most_pods: int = 110
    minor: int = 37
    """The minor version of Kubernetes 1: from 37 on a socket's name is taken while its plugin counts as connected."""
    keeps_last: bool = False
    """Whether the pod admitted last keeps its devices after its end until another is admitted, as in 1.22 and 1.24."""


class SimKubelet:
    """The embedded kubelet, which can be stopped and started; the runtime outlives it."""

    def __init__(
        self, settings: KubeletSettings, *, registry: Registry, runtime: Runtime, order: random.Random
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._runtime = runtime
        self._order = order
        self._lock = threading.RLock()
        self._statics: list[Json] = []
        self._pods: dict[str, Json] = {}
        self._workers: dict[str, PodWorker] = {}
        self._over: set[str] = set()
        """Pods that were rejected, or had ended before this kubelet started."""
        self._rejections: dict[str, Rejection] = {}
        self._last_allocatable: Json = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.devices_folder = settings.folder / "device-plugins"
        self.resources_folder = settings.folder / "pod-resources"
        self.pods_folder = settings.folder / "pods"
        for folder in (self.devices_folder, self.resources_folder, self.pods_folder):
            folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the sockets first, and the pods a moment later."""
        settings = self._settings
        self._stop = threading.Event()
        self._pods, self._workers, self._over, self._rejections = {}, {}, set(), {}
        self._manager = DeviceManager(
            self.devices_folder,
            order=self._order,
            active=self._active,
            grace_s=settings.grace_s,
            keeps_last=settings.keeps_last,
        )
        self._reports = ApiReports(self._registry, self._api_pod)
        self._registration = RegistrationServer(
            self.devices_folder, self._manager, by_socket=settings.minor >= _BY_SOCKET
        )
        self._resources = PodResourcesServer(self.resources_folder, self._manager, self.pods)
        self._status = NodeStatus(
            self._registry,
            settings.node,
            capacity=self._manager.capacity,
            period_s=settings.status_period_s,
            most_pods=settings.most_pods,
            version=f"v1.{settings.minor}.0+sim",
        )
        self._thread = threading.Thread(target=self._run, name=f"kubelet {settings.node}")
        self._thread.start()

    def stop(self) -> None:
        """Stop kubelet; containers go on."""
        if self._thread is None:
            return
        self._stop.set()
        self._registry.store.wake()
        for worker in list(self._workers.values()):
            worker.detach()
        self._registration.stop()
        self._thread.join()
        self._thread = None
        for worker in self._workers.values():
            worker.detach()  # once more, since a worker may have been added meanwhile
        for worker in self._workers.values():
            worker.join()
        self._resources.stop()

    @property
    def manager(self) -> DeviceManager:
        """The device manager since kubelet's last start."""
        return self._manager

    def set_static(self, manifests: Sequence[Json]) -> None:
        """Replace the static pods."""
        with self._lock:
            self._statics = [static_pod(manifest, self._settings.node) for manifest in manifests]
        self._registry.store.wake()

    def pods(self) -> list[Json]:
        """Return all pods that kubelet knows; static ones under their own UID."""
        with self._lock:
            return list(self._pods.values())

    def proxy(self, path: str) -> Json:
        """Return the answer to a request that the API server proxies: `pods` and `runningpods`.

        Raises:
            ApiError: 502 when kubelet is down, 404 for other paths.
        """
        if self._thread is None:
            raise ApiError(502, "BadGateway", "error trying to reach service: dial tcp: connect: connection refused")
        if path not in {"pods", "runningpods"}:
            raise not_found("proxy", path)
        items = self.pods() if path == "pods" else self._runtime.running()
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _run(self) -> None:
        ready = self._register_node()
        if not ready or self._stop.wait(self._settings.admission_delay_s):
            return
        self._status.start()
        version = 0
        while not self._stop.is_set():
            try:
                version = self._registry.store.version
                self._sync()
            except ApiError:
                self._stop.wait(_DOWN_S)
                continue
            if not self._manager.sources_ready:
                self._end_orphans()
                self._manager.sources_ready = True
            self._keep_folders()
            self._registry.store.wait(version, _LOOK_S, self._stop.is_set)
        self._status.stop()

    def _register_node(self) -> bool:
        while not self._stop.is_set():
            try:
                self._status.register(self._settings.labels)
            except ApiError:
                self._stop.wait(_DOWN_S)
            else:
                return True
        return False

    def _sync(self) -> None:
        node = self._settings.node
        bound = self._registry.items("pods", "", ObjectSelector.parse(fields=f"spec.nodeName={node}"))
        statics = list(self._statics)
        keep_mirrors(self._registry, statics, [pod for pod in bound if is_mirror(pod)], node=node)
        wanted = {pod["metadata"]["uid"]: pod for pod in [*statics, *bound] if not is_mirror(pod)}
        for uid in [uid for uid in self._pods if uid not in wanted]:
            self._remove(uid)
        new = [pod for uid, pod in wanted.items() if uid not in self._pods]
        with self._lock:
            self._pods.update({uid: pod for uid, pod in wanted.items() if uid in self._pods})
        # Times have whole seconds: the order of pods of the same second is random, as in a real kubelet.
        for pod in sorted(new, key=lambda p: (p["metadata"]["creationTimestamp"] or "", self._order.random())):
            if self._stop.is_set():
                return
            self._add(pod)
        for uid, pod in wanted.items():
            if pod["metadata"].get("deletionTimestamp"):
                self._end(uid)
            elif uid in self._rejections and pod["status"].get("phase") not in _TERMINAL and pod not in new:
                self._reports.reject(pod, self._rejections[uid])  # the API was down at the first report

    def _add(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        others = [self._pods[other] for other in self._active() & set(self._pods)]
        with self._lock:
            self._pods[uid] = pod
        running = [name for name, c in self._runtime.containers(uid).items() if c.is_running(time.time())]
        ended = pod["status"].get("phase") in _TERMINAL
        leaving = bool(pod["metadata"].get("deletionTimestamp"))
        if ended and not running and not leaving:
            self._over.add(uid)
        elif ended or leaving or self._admit(pod, others, running=running):
            self._work(pod, end=ended or leaving)

    def _admit(self, pod: Json, others: Sequence[Json], *, running: Sequence[str]) -> bool:
        rejection = allocate_pod(pod, self._manager, running=running) or fits_node(
            pod, others, allocatable=self._allocatable(), manager=self._manager
        )
        if self._stop.is_set():
            return False  # killed in the middle: the result is not reported
        if rejection is None:
            return True
        uid = pod["metadata"]["uid"]
        self._over.add(uid)
        self._rejections[uid] = rejection
        self._reports.reject(pod, rejection, ran=bool(running))
        self._runtime.forget(uid)
        return False

    def _work(self, pod: Json, *, end: bool) -> None:
        worker = PodWorker(
            pod, runtime=self._runtime, manager=self._manager, reports=self._reports, pace=self._settings.pace
        )
        self._workers[worker.uid] = worker
        if end:
            worker.end()
        worker.start()

    def _remove(self, uid: str) -> None:
        """End the containers of a pod whose object is gone, and forget the pod."""
        with self._lock:
            self._pods.pop(uid)
        self._over.discard(uid)
        self._rejections.pop(uid, None)
        self._end(uid)

    def _end(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is None:
            if uid in self._over:
                self._reports.gone(self._pods[uid])
        elif worker.terminated:
            self._reports.gone(worker.pod)
            if uid not in self._pods:
                del self._workers[uid]
                self._runtime.forget(uid)
        elif not worker.ending:
            worker.end()

    def _end_orphans(self) -> None:
        for uid in self._runtime.pods():
            if uid not in self._pods:
                self._runtime.kill(uid)
                self._runtime.forget(uid)

    def _keep_folders(self) -> None:
        """Make a folder for each pod, and remove those of pods of which nothing is left; never before the first pods.

        1.33: `cleanupOrphanedPodDirs`, behind the check that all sources are ready.
        """
        known = {*self._pods, *self._runtime.pods()}
        for uid in known:
            (self.pods_folder / uid).mkdir(exist_ok=True)
        for folder in self.pods_folder.iterdir():
            if folder.name not in known:
                folder.rmdir()

    def _active(self) -> set[str]:
        with self._lock:
            pods = set(self._pods)
        return {uid for uid in pods - self._over if not ((w := self._workers.get(uid)) and w.terminated)}

    def _api_pod(self, pod: Json) -> Json | None:
        metadata = pod["metadata"]
        if metadata.get("creationTimestamp") is None:
            return mirror_of(self._registry, pod)
        try:
            found = self._registry.get("pods", metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None
        return found if found["metadata"]["uid"] == metadata["uid"] else None

    def _allocatable(self) -> Json:
        """Return the Node's allocatable as last read, so that admission works while the API is down."""
        try:
            node = self._registry.get("nodes", "", self._settings.node)
        except ApiError:
            return self._last_allocatable
        self._last_allocatable = (node.get("status") or {}).get("allocatable") or {}
        return self._last_allocatable
