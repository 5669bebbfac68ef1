"""The requests of the node's part to the API server and kubelet about the node's own pods."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.kube import Conflict, EventRecorder, KubeError, KubeObjects, NotFound, PodRef, Unavailable
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_plugin.errors import PodResourcesError
from edgegpu_plugin.kubelet.pods import KubeletPods, PodResources
from edgegpu_plugin.pb import PodDevices
from edgegpu_plugin.records.node_state import PodName

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodePods:
    """Writes to pods of this node; a pod that is gone or has been replaced is no error."""

    objects: KubeObjects
    events: EventRecorder

    def annotate(self, pod: PodView, annotations: dict[str, str]) -> None:
        """Write annotations of the pod with this UID."""
        try:
            self.objects.annotate_pod(pod.namespace, pod.name, uid=pod.uid, annotations=annotations)
        except NotFound:
            _LOG.debug("%s is gone: nothing to annotate", pod.full_name)

    def evict(self, pod: PodView) -> None:
        """Evict the pod; if a disruption budget refuses that, it is tried again later."""
        try:
            self.objects.evict_pod(pod.namespace, pod.name, uid=pod.uid)
        except (NotFound, Conflict):
            _LOG.debug("%s is gone: nothing to evict", pod.full_name)
        except KubeError as error:  # a disruption budget, or missing rights: go on with the other pods
            _LOG.warning("cannot evict %s now: %s", pod.full_name, error)

    def delete(self, pod: PodView) -> None:
        """Delete the pod with this UID."""
        try:
            self.objects.delete_pod(pod.namespace, pod.name, uid=pod.uid)
        except Conflict:
            _LOG.debug("%s is another pod by now: left alone", pod.full_name)

    def warn(self, pod: PodView, reason: str, message: str) -> None:
        """Write a Warning event on the pod; a repeated one only raises its count."""
        self.events.record(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid), reason=reason, message=message)


@dataclass(eq=False, slots=True, kw_only=True)
class NodeKubeletFacts:
    """Queries of kubelet: who holds devices, and which pods it still has; None when there is no answer."""

    model: ResourceModel
    kubelet: KubeletPods
    pod_resources: PodResources
    _last_error: str = field(default="", init=False)

    def listed_ids(self) -> frozenset[str] | None:
        """Return our device ids in PodResources; the call makes kubelet release those of ended pods."""
        listed = self._list()
        if listed is None:
            return None
        return frozenset(text for one in self._ours(listed) for text in one.ids)

    def listed_names(self) -> dict[str, PodName] | None:
        """Return the names of the pods in PodResources by our device ids."""
        listed = self._list()
        if listed is None:
            return None
        return {text: PodName(one.namespace, one.pod) for one in self._ours(listed) for text in one.ids}

    def _list(self) -> Sequence[PodDevices] | None:
        try:
            return self.pod_resources.list()
        except PodResourcesError as error:
            _LOG.debug("%s", error)
            return None

    def _ours(self, listed: Sequence[PodDevices]) -> list[PodDevices]:
        names = {self.model.memory_resource, self.model.core_resource}
        return [one for one in listed if one.resource in names]

    def folder_uids(self) -> frozenset[str] | None:
        """Return the UIDs of the pods of which kubelet still keeps a folder."""
        try:
            return self.kubelet.folders()
        except EdgegpuError as error:
            _LOG.debug("%s", error)
            return None

    def known_uids(self) -> frozenset[str] | None:
        """Return the UIDs of the pods that kubelet still has, or of which the runtime still runs a container."""
        try:
            known = self.kubelet.uids()
        except EdgegpuError as error:
            # An API server that is away is back soon; missing rights stay, and hold units for ever.
            first = not isinstance(error, Unavailable) and str(error) != self._last_error
            _LOG.log(
                logging.WARNING if first else logging.DEBUG,
                "devices of pods that are gone are not given back, since kubelet's pods cannot be told: %s",
                error,
            )
            self._last_error = str(error) if first else self._last_error
            return None
        self._last_error = ""
        return known

    def pods(self) -> list[PodView] | None:
        """Return the pods in kubelet's own list that ask for shares, static ones included."""
        try:
            listed = self.kubelet.pods()
        except KubeError as error:
            _LOG.warning("cannot read kubelet's pod list: %s", error)
            return None
        views = (pod_view(pod, self.model, by_kubelet=True) for pod in listed)
        return [view for view in views if view is not None]
