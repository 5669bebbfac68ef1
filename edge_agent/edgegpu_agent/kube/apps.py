"""The API's workloads and what decides about their pods: find by name, read, patch under the resourceVersion."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from edgegpu_agent.kube.client import AgentClient
from edgegpu_base.kube import Json, KubeError, NotFound
from edgegpu_core.limits.workload import WorkloadKind

SYSTEM = "kube-system"
_PAGE = 50
"""Objects per page: a page of pods is half a MiB of text, and several times as much once parsed."""

_NOT_THERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_PLURALS = {
    WorkloadKind.DEPLOYMENT: "deployments",
    WorkloadKind.STATEFUL_SET: "statefulsets",
    WorkloadKind.DAEMON_SET: "daemonsets",
}


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """A workload by kind, namespace and name."""

    kind: WorkloadKind
    namespace: str
    name: str

    @property
    def collection_path(self) -> str:
        """The API path of all workloads of this kind in the namespace."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/{_PLURALS[self.kind]}"

    @property
    def path(self) -> str:
        """The API path of the workload."""
        return f"{self.collection_path}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind.value} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class FoundWorkload:
    """A workload as it was read from the API."""

    ref: WorkloadRef
    item: Json

    @property
    def uid(self) -> str:
        """The UID of the workload; a name may be used again."""
        return str(self.item["metadata"]["uid"])

    @property
    def version(self) -> str:
        """The resourceVersion of the workload."""
        return str(self.item["metadata"]["resourceVersion"])

    @property
    def spec(self) -> Json:
        """The spec of the workload."""
        spec: Json = self.item["spec"]
        return spec

    @property
    def template(self) -> Json:
        """The pod template of the workload."""
        template: Json = self.spec["template"]
        return template

    def annotation(self, name: str) -> str:
        """Return an annotation of the workload; empty without it."""
        return str((self.item["metadata"].get("annotations") or {}).get(name) or "")


class Apps:
    """The client for workloads, pods, nodes and quotas; every call raises KubeError or a subclass of it."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    def cluster_uid(self) -> str:
        """Return the UID of the namespace kube-system, which identifies the cluster."""
        return str(self._client.get(f"/api/v1/namespaces/{SYSTEM}")["metadata"]["uid"])

    def find(self, namespace: str, name: str) -> tuple[FoundWorkload, ...]:
        """Return those of the Deployment, StatefulSet and DaemonSet of a name that exist."""
        refs = [WorkloadRef(kind, namespace, name) for kind in WorkloadKind]
        return tuple(found for ref in refs if (found := self._look(ref)) is not None)

    def _look(self, ref: WorkloadRef) -> FoundWorkload | None:
        try:
            return self.read(ref)
        except NotFound:
            return None

    def read(self, ref: WorkloadRef) -> FoundWorkload:
        """Read a workload. Raises NotFound."""
        return FoundWorkload(ref, self._client.get(ref.path))

    def patch(self, found: FoundWorkload, change: Json) -> FoundWorkload:
        """Change a workload by a strategic merge patch. Raises Conflict when it has changed since it was read."""
        return FoundWorkload(found.ref, self._client.strategic(found.ref.path, change, version=found.version))

    def pods(self, namespace: str = "", *, labels: str = "") -> Iterator[Json]:
        """Yield all pods, or those of a namespace or a label selector, page by page."""
        yield from self._items(pods_path(namespace), {"labelSelector": labels} if labels else {})

    def nodes(self) -> Iterator[Json]:
        """Yield all nodes."""
        yield from self._items("/api/v1/nodes")

    def quotas(self, namespace: str) -> list[Json]:
        """Return a namespace's resource quotas."""
        return list(self._items(f"/api/v1/namespaces/{namespace}/resourcequotas"))

    def autoscaled_to(self, ref: WorkloadRef) -> int | None:
        """Return how many replicas an autoscaler may ask for; None without one. All k3s have autoscaling/v1."""
        path = f"/apis/autoscaling/v1/namespaces/{ref.namespace}/horizontalpodautoscalers"
        most = [
            int(item["spec"]["maxReplicas"])
            for item in self._items(path)
            if item["spec"]["scaleTargetRef"].get("kind") == ref.kind.value
            and item["spec"]["scaleTargetRef"].get("name") == ref.name
        ]
        return max(most, default=None)

    def _items(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Yield the objects of a collection; one that the API does not have is empty."""
        try:
            for page in self._client.pages(path, params=params, limit=_PAGE):
                yield from page.items
        except KubeError as error:
            if error.status not in _NOT_THERE:
                raise


def pods_path(namespace: str = "") -> str:
    """Return the API path of the pods of a namespace, or of all pods."""
    return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
