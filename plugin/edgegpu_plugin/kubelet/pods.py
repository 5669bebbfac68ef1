"""Queries of kubelet about its pods: who holds which devices (PodResources), and which pods it still has.

Which pods it has comes from its own lists behind the API server, or from its folders where these are refused.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import grpc

from edgegpu_base.kube import Forbidden, Json, KubeObjects
from edgegpu_core.podview import as_kubelet_lists, is_mirror, mirrored_uid
from edgegpu_plugin.errors import PluginError, PodResourcesError
from edgegpu_plugin.pb import PodDevices, PodResourcesCaller, channel


@dataclass(frozen=True, slots=True)
class PodResources:
    """kubelet's PodResources service; safe to call from several threads."""

    socket: Path
    timeout_s: float = 5.0

    def list(self) -> tuple[PodDevices, ...] | None:
        """Return what containers hold, with several entries for one resource possible; None without the service.

        kubelet leaves ordinary init containers out. The call makes it release the devices of pods that are gone. Each
        call has its own connection, since gRPC's back-off grows to minutes while kubelet is down.

        Raises:
            PodResourcesError: the service did not answer in time, or with an error.
        """
        try:
            self.socket.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PodResourcesError(f"cannot look at {self.socket}: {error.strerror or error}") from error
        with contextlib.closing(channel(str(self.socket))) as link:
            try:
                return tuple(PodResourcesCaller(link).list(self.timeout_s))
            except grpc.RpcError as error:
                code, details = status_of(error)
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    return None
                raise PodResourcesError(
                    f"cannot list pods' devices at {self.socket}: {details}; is kubelet (k3s) running?"
                ) from error


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a failed call (the type stubs do not know that its error has them)."""
    if isinstance(error, grpc.Call):
        return error.code(), str(error.details())
    return grpc.StatusCode.UNKNOWN, str(error)


_LOG = logging.getLogger(__name__)

REFUSED_S = 60.0
"""How long a refusal counts: an API server that has just started refuses everybody for a moment."""


@dataclass(eq=False, slots=True, kw_only=True)
class KubeletPods:
    """The query of kubelet's pods in the way that this node's account may; for one thread or several.

    A service account of the plugin's own has `nodes/proxy`. A node that acts as itself has not, and may not use
    kubelet's own port either. Then kubelet's folders show its pods: it makes KUBELET/pods/UID before the first
    container, and removes it once the pod has left its list and the runtime runs nothing of it (seen on 1.33: 0.6 s
    after an ordinary deletion; after a forced one when the containers have ended). Between admission and folder the API
    server still has the pod, so its list counts as well.
    """

    node: str
    objects: KubeObjects
    folder: Path
    clock: Callable[[], float] = time.monotonic
    _refused_at: float | None = field(default=None, init=False)
    source: str = field(default="", init=False)
    """The text that says how kubelet was last queried; empty before the first query."""

    def uids(self) -> frozenset[str]:
        """Return the UIDs of the pods that kubelet or the runtime still has; static pods with kubelet's own UID.

        Raises:
            PluginError: neither kubelet's lists nor its folders give an answer.
        """
        if self._may_ask():
            try:
                listed = self.objects.kubelet_pods(self.node)
                running = self.objects.running_pods(self.node)
            except Forbidden as error:
                self._note(error)
            else:
                self._log_source("kubelet's own list")
                return running | {str(pod["metadata"]["uid"]) for pod in listed}
        # In this order: a pod that the API no longer has cannot get a folder after we have read the folders.
        pods = list(self.objects.list_pods(self.node))
        stored = {str(pod["metadata"]["uid"]) for pod in (*pods, *_as_kubelet_has(pods))}
        known = self.folders() | stored
        self._log_source(f"the folders in {self.folder}")
        return known

    def pods(self) -> list[Json]:
        """Return the pods that kubelet knows; if its list is refused, those of the API as kubelet would list them.

        Raises:
            KubeError: there is no answer.
        """
        if self._may_ask():
            try:
                return self.objects.kubelet_pods(self.node)
            except Forbidden as error:
                self._note(error)
        return _as_kubelet_has(self.objects.list_pods(self.node))

    def _may_ask(self) -> bool:
        return self._refused_at is None or self.clock() - self._refused_at >= REFUSED_S

    def _note(self, error: Forbidden) -> None:
        """Remember that kubelet's lists are refused (403); an error about our identity is raised instead."""
        if error.status != HTTPStatus.FORBIDDEN:
            raise error
        self._refused_at = self.clock()

    def _log_source(self, source: str) -> None:
        if source != self.source:
            _LOG.info("whether a pod that is gone has let go of its devices is told by %s", source)
        self.source = source

    def folders(self) -> frozenset[str]:
        """Return the UIDs of the pods of which kubelet keeps a folder: it removes none before it has read static pods.

        Raises:
            PluginError: its folder cannot be read.
        """
        try:
            return frozenset(entry.name for entry in self.folder.iterdir())
        except OSError as error:
            raise PluginError(
                f"cannot read kubelet's folder {self.folder}: {error.strerror}: set kubelet.folder to kubelet's own"
            ) from error


def _as_kubelet_has(pods: Iterable[Json]) -> list[Json]:
    """Return the API's pods of a node as its kubelet would list them, with static pods from their mirrors.

    A mirror counts if the node owns it and the UID is no other pod's. Of several mirrors of a static pod the oldest
    counts (kubelet deletes the others within seconds).
    """
    found: dict[str, Json] = {}
    mirrors: list[Json] = []
    for pod in pods:
        if is_mirror(pod):
            mirrors.append(pod)
        else:
            found[str(pod["metadata"]["uid"])] = as_kubelet_lists(pod)
    for mirror in sorted(mirrors, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        uid = mirrored_uid(mirror)
        if uid and uid not in found:
            found[uid] = as_kubelet_lists(mirror, uid=uid)
    return list(found.values())
