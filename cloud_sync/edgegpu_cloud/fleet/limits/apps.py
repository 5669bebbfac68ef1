"""Apps that are known without asking a box: by the pods that hold shares, and by the limits requested; pure."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_sync.messages.telemetry import PodAlloc

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
"""The characters that Kubernetes appends to names: no vowels (`alphanums` in apimachinery's util/rand)."""

_ENDING = re.compile(rf"-(({_RANDOM}{{1,10}}-)?{_RANDOM}{{5}}|[0-9]+)")
_NEAR = 0.75


@dataclass(frozen=True, slots=True)
class FleetApp:
    """An app, and those of its containers that hold shares or have requested limits."""

    namespace: str
    app: str
    containers: frozenset[str]

    @property
    def name(self) -> str:
        """Return NAMESPACE/APP."""
        return f"{self.namespace}/{self.app}"


def is_pod_of(pod: PodAlloc, namespace: str, app: str) -> bool:
    """Whether a pod is named as one of this app's: a Deployment's, a StatefulSet's or a DaemonSet's."""
    begins = pod.namespace == namespace and pod.name.startswith(app)
    return begins and _ENDING.fullmatch(pod.name, len(app)) is not None


def app_name(pod: str) -> str:
    """Return the most likely name of a pod's app."""
    found = re.fullmatch(rf"(.+?){_ENDING.pattern}", pod)
    return found[1] if found else pod


def apps_of(boxes: Iterable[BoxDetails]) -> list[FleetApp]:
    """Return the apps of a cluster, by the reports of its boxes and the limits requested there; by name."""
    found: dict[tuple[str, str], set[str]] = {}
    for details in boxes:
        for pod in pods_of(details.latest).values():
            mine = found.setdefault((pod.namespace, app_name(pod.name)), set())
            mine |= {piece.container for piece in pod.pieces}
        for item in details.spec.app_limits:
            found.setdefault((item.namespace, item.app), set()).add(item.container)
    return [FleetApp(namespace, app, frozenset(names)) for (namespace, app), names in sorted(found.items())]


def holders_of(boxes: Iterable[BoxDetails], namespace: str, app: str) -> frozenset[str]:
    """Return the containers of an app that hold shares now."""
    return frozenset().union(*(containers_in(pods_of(details.latest), namespace, app) for details in boxes))


def containers_in(pods: Mapping[str, PodAlloc], namespace: str, app: str) -> frozenset[str]:
    """Return the containers of an app that hold shares by one box's report of its pods."""
    mine = (pod for pod in pods.values() if is_pod_of(pod, namespace, app))
    return frozenset(piece.container for pod in mine for piece in pod.pieces)


def near(known: Iterable[FleetApp], namespace: str, app: str) -> list[str]:
    """Return apps whose names are almost this one, the nearest first: NAMESPACE/APP."""
    names = [one.name for one in known]
    elsewhere = [one.name for one in known if one.app == app]
    return [*elsewhere, *difflib.get_close_matches(f"{namespace}/{app}", names, n=3, cutoff=_NEAR)]
