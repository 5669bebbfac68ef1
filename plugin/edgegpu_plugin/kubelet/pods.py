"""What kubelet says of its pods: who holds which devices (PodResources), and which pods it still has.

The latter by its own lists behind the API server, or by its folders where those are refused.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path

import grpc

from edgegpu_base.kube import Forbidden, Json, KubeObjects
from edgegpu_core.podview import as_kubelet_lists, is_mirror, mirrored_uid
from edgegpu_plugin.errors import PluginError, PodResourcesError
from edgegpu_plugin.pb import PodDevices, PodResourcesCaller, channel


class PodResources:
    """kubelet's PodResources service; safe to call from several threads."""

    def __init__(self, socket: Path, *, timeout_s: float = 5.0) -> None:
        self._socket = socket
        self._timeout_s = timeout_s

    def list(self) -> tuple[PodDevices, ...] | None:
        """Return what containers hold, several entries for one resource possible; None: no such service here.

        Ordinary init containers are left out by kubelet. The call makes it collect the devices of pods that are gone.
        Each call has a connection of its own: gRPC's waits grow to minutes while kubelet is down.

        Raises:
            PodResourcesError: the service did not answer in time, or with an error.
        """
        try:
            self._socket.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PodResourcesError(f"cannot look at {self._socket}: {error.strerror or error}") from error
        with contextlib.closing(channel(str(self._socket))) as link:
            try:
                return tuple(PodResourcesCaller(link).list(self._timeout_s))
            except grpc.RpcError as error:
                code, details = status_of(error)
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    return None
                raise PodResourcesError(
                    f"cannot list pods' devices at {self._socket}: {details}; is kubelet (k3s) running?"
                ) from error


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a failed call (the stubs do not know that the errors of calls carry them)."""
    if isinstance(error, grpc.Call):
        return error.code(), str(error.details())
    return grpc.StatusCode.UNKNOWN, str(error)


_LOG = logging.getLogger(__name__)

REFUSED_S = 60.0
"""How long a refusal counts: an API server that has just started refuses everybody for a moment."""


class KubeletPods:
    """Asks in the way that this node's account may; called by one thread at a time, or by several.

    A service account of the plugin's own has `nodes/proxy`. A node that acts as itself has not, nor may it ask
    kubelet's own port. There kubelet's folders tell: it makes KUBELET/pods/UID before the first container, and removes
    it once the pod has left its list and the runtime runs nothing of it (seen on 1.33: 0.6 s after an ordinary
    deletion; after a forced one when the containers have ended). In the moment between admission and folder the API
    server still has the pod, so its word counts as well.
    """

    def __init__(
        self, *, node: str, objects: KubeObjects, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node
        self._objects = objects
        self._folder = folder
        self._clock = clock
        self._refused_at: float | None = None
        self.way = ""
        """How kubelet was asked last, in words; empty before the first time."""

    def uids(self) -> frozenset[str]:
        """Return the UIDs that kubelet or the container runtime still has, kubelet's own of static pods among them.

        Raises:
            PluginError: neither way gives an answer.
        """
        if self._may_ask():
            try:
                listed = self._objects.kubelet_pods(self._node)
                running = self._objects.running_pods(self._node)
            except Forbidden as error:
                self._note(error)
            else:
                self._use("kubelet's own list")
                return running | {str(pod["metadata"]["uid"]) for pod in listed}
        # In this order: what the API does not have any more cannot get a folder after we looked.
        pods = list(self._objects.list_pods(self._node))
        stored = {str(pod["metadata"]["uid"]) for pod in (*pods, *_as_kubelet_has(pods))}
        known = self._folders() | stored
        self._use(f"the folders in {self._folder}")
        return known

    def pods(self) -> list[Json]:
        """Return the pods that kubelet knows; where it may not be asked, those that the API has, as kubelet lists them.

        Raises:
            KubeError: there is no answer.
        """
        if self._may_ask():
            try:
                return self._objects.kubelet_pods(self._node)
            except Forbidden as error:
                self._note(error)
        return _as_kubelet_has(self._objects.list_pods(self._node))

    def _may_ask(self) -> bool:
        return self._refused_at is None or self._clock() - self._refused_at >= REFUSED_S

    def _note(self, error: Forbidden) -> None:
        """Keep in mind that kubelet's lists are refused; who we are may be in doubt, and is no such answer."""
        if error.status != HTTPStatus.FORBIDDEN:
            raise error
        self._refused_at = self._clock()

    def _use(self, way: str) -> None:
        if way != self.way:
            _LOG.info("whether a pod that is gone has let go of its devices is told by %s", way)
        self.way = way

    def _folders(self) -> frozenset[str]:
        try:
            return frozenset(entry.name for entry in self._folder.iterdir())
        except OSError as error:
            raise PluginError(
                f"cannot read kubelet's folder {self._folder}: {error.strerror}: set kubelet.folder to kubelet's own"
            ) from error


def _as_kubelet_has(pods: Iterable[Json]) -> list[Json]:
    """Return what the API has of a node as its kubelet would list it, static pods by their mirrors.

    A mirror is believed where nothing contradicts it: it is owned by the node, the UID is no other pod's, and of
    several that show the same static pod the oldest counts (kubelet deletes the others within seconds).
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
