"""A snapshot of the cluster for one verdict: the app, its pods, and all nodes with what is held there."""

from collections.abc import Callable
from dataclasses import asdict

from edgegpu_agent.app_limits.drift import current_amounts
from edgegpu_agent.app_limits.progress import owned, owns, selector
from edgegpu_agent.kube.apps import Apps, FoundWorkload
from edgegpu_base.kube import Json
from edgegpu_core.limits.capacity import NodeRoom
from edgegpu_core.limits.readers import new_pod, own_pod, read_node, read_quota, with_amounts
from edgegpu_core.limits.verdict import LimitsChange, LimitsVerdict, limits_verdict
from edgegpu_core.limits.workload import WorkloadKind, read_workload
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.uplink import CardFreeNumbers, Numbers
from edgegpu_sync.wire import clipped


class ClusterSnapshot:
    """A reader of the cluster that lets the core judge new limits on what it has read."""

    def __init__(self, apps: Apps, model: Callable[[], ResourceModel]) -> None:
        self._apps = apps
        self.model = model

    def judge(self, found: FoundWorkload, container: str, request: RequestedAmounts) -> LimitsVerdict:
        """Return whether an app has room under other limits of one container. Raises KubeError."""
        return limits_verdict(self._case(found, container, request))

    def pods(self, found: FoundWorkload) -> list[Json]:
        """Return the app's own pods. Raises KubeError."""
        return owned(found, self._apps.pods(found.ref.namespace, labels=selector(found)))

    def shared(self) -> bool:
        """Return whether any node of the cluster has GPU sharing. Raises KubeError."""
        return any(room.slots for room in self._rooms(()))

    def _case(self, found: FoundWorkload, container: str, request: RequestedAmounts) -> LimitsChange:
        model = self.model()
        own, seen = [], []
        for pod in self._apps.pods():  # each page is freed before the next is read
            view = pod_view(pod, model)
            if view is not None:
                seen.append(view)
            if owns(found, pod) and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                own.append(own_pod(pod, model))
        template = with_amounts(found.template, container, request, model)
        scales = found.ref.kind is not WorkloadKind.DAEMON_SET
        return LimitsChange(
            workload=read_workload(found.ref.kind, found.item),
            request=request,
            before=current_amounts(found, container, model) or RequestedAmounts(0, 0),
            pod=new_pod(template, model),
            own=tuple(own),
            rooms=self._rooms(seen),
            quota=read_quota(self._apps.quotas(found.ref.namespace), model),
            at_most=self._apps.autoscaled_to(found.ref) if scales else None,
        )

    def _rooms(self, pods: list[PodView] | tuple[()]) -> tuple[NodeRoom, ...]:
        model = self.model()
        there: dict[str, list[PodView]] = {}
        for pod in pods:
            there.setdefault(pod.node, []).append(pod)
        rooms = (read_node(node, there.get(node["metadata"]["name"], ()), model) for node in self._apps.nodes())
        return tuple(sorted(rooms, key=lambda room: room.name))


def numbers_of(verdict: LimitsVerdict) -> Numbers:
    """Return a verdict's numbers in the form of a report."""
    return Numbers(
        need_units=verdict.request.memory_units,
        need_core=verdict.request.core,
        replicas=verdict.replicas,
        verdict=verdict.answer.value,
        cards=tuple(CardFreeNumbers(**{**asdict(card), "card": clipped(card.card, 64)}) for card in verdict.cards),
    )
