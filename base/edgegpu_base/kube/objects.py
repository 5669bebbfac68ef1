"""The calls of edgegpu to the API server: pods, nodes, bindings, evictions, and kubelet's lists behind the proxy."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus

from edgegpu_base.kube.client import Json, KubeClient
from edgegpu_base.kube.errors import Conflict, Forbidden, KubeError, NotFound

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"

BIND_S = 10.0
"""How long a binding may take; after that it has taken effect or never will."""

_SERVER_BIND_S = 8
"""The API server's time-out, shorter than ours, so that hardly any binding takes effect after our wait has ended."""


class KubeObjects:
    """The typed calls; each raises KubeError or a subclass of it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._through_status = False

    def get_pod(self, namespace: str, name: str) -> Json:
        """Read a pod as the store has it now. Raises NotFound."""
        return self._client.get(_pod(namespace, name))

    def list_pods(self, node: str | None = None) -> Iterator[Json]:
        """Read all pods, or those bound to a node, as the store has them now (no resource version: a quorum read)."""
        params = {} if node is None else {"fieldSelector": f"spec.nodeName={node}"}
        for page in self._client.pages(PODS, params=params):
            yield from page.items

    def bind_pod(self, namespace: str, name: str, *, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Bind a pod and annotate it in one write: the API server merges the binding's annotations into the pod.

        Raises:
            Conflict: another pod has the name now, or it is bound already.
            NotFound: the pod is gone.
            Unavailable: the binding may or may not have taken effect.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        params = {"timeout": f"{_SERVER_BIND_S}s"}
        self._client.create(f"{_pod(namespace, name)}/binding", body, params=params, timeout_s=BIND_S)

    def annotate_pod(self, namespace: str, name: str, *, uid: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the pod with this UID; None removes one. Raises Conflict when it is another pod.

        A node that acts as itself may change its own pods, including annotations, only through their status; an account
        that may change pods need not be allowed to change their status. So both are tried, first what worked last.
        """
        body: Json = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        first, second = ("/status", "") if self._through_status else ("", "/status")
        try:
            self._patch_pod(f"{_pod(namespace, name)}{first}", body)
        except Forbidden as error:
            try:
                self._patch_pod(f"{_pod(namespace, name)}{second}", body)
            except Forbidden:
                raise error from None
            self._through_status = not self._through_status

    def _patch_pod(self, path: str, body: Json) -> None:
        try:
            self._client.patch(path, body)
        except KubeError as error:
            # The server reports another UID as a change of an immutable field (seen on 1.33), not as a conflict.
            if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and "metadata.uid" in str(error):
                raise Conflict(str(error), status=error.status) from error
            raise

    def evict_pod(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict the pod with this UID, respecting disruption budgets.

        Raises:
            Unavailable: a budget does not allow it now (429); try again later.
            Conflict: another pod has the name now.
        """
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"{_pod(namespace, name)}/eviction"
        try:
            self._client.create(path, body)
        except KubeError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            # Before Kubernetes 1.22 there was only the beta of it.
            self._client.create(path, {**body, "apiVersion": "policy/v1beta1"})

    def delete_pod(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete the pod with this UID; one that is gone already is fine. Raises Conflict when it is another pod."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        with suppress(NotFound):
            self._client.delete(_pod(namespace, name), body)

    def get_node(self, name: str) -> Json:
        """Read a node as the store has it now. Raises NotFound."""
        return self._client.get(f"{NODES}/{name}")

    def get_lease(self, namespace: str, name: str) -> Json:
        """Read a Lease as the store has it now. Raises NotFound."""
        return self._client.get(_LEASES.format(namespace, name))

    def list_budgets(self) -> Iterator[Json]:
        """Read all PodDisruptionBudgets as the API server's watch cache has them, when a pod is about to be preempted.

        They may be old by moments. A list without a resource version would scan the store, and help nobody: the
        scheduler, which deletes the victims, counts by a cache of its own as well.
        """
        from_cache = {"resourceVersion": "0"}
        try:
            pages = list(self._client.pages("/apis/policy/v1/poddisruptionbudgets", params=from_cache))
        except NotFound:
            # Before Kubernetes 1.21 there was only the beta of it.
            pages = list(self._client.pages("/apis/policy/v1beta1/poddisruptionbudgets", params=from_cache))
        for page in pages:
            yield from page.items

    def annotate_node(
        self, name: str, annotations: Mapping[str, str | None], *, labels: Mapping[str, str] | None = None
    ) -> None:
        """Set annotations of a node, and labels in the same write; None removes an annotation."""
        metadata: Json = {"annotations": dict(annotations), **({"labels": dict(labels)} if labels else {})}
        self._client.patch(f"{NODES}/{name}", {"metadata": metadata})

    def kubelet_pods(self, node: str) -> list[Json]:
        """Return the pods that a kubelet knows, including static ones, perhaps before our watch shows them."""
        return self._client.get(f"{NODES}/{node}/proxy/pods").get("items") or []

    def running_pods(self, node: str) -> frozenset[str]:
        """Return the UIDs of the pods of which the node's container runtime still runs a container."""
        items = self._client.get(f"{NODES}/{node}/proxy/runningpods/").get("items") or []
        return frozenset(str(item["metadata"]["uid"]) for item in items)

    def create_event(self, namespace: str, event: Json) -> Json:
        """Write a core/v1 Event and return it as stored."""
        return self._client.create(f"/api/v1/namespaces/{namespace}/events", event)

    def patch_event(self, namespace: str, name: str, change: Json) -> None:
        """Change an Event. Raises NotFound when it has expired (an hour by default)."""
        self._client.patch(f"/api/v1/namespaces/{namespace}/events/{name}", change)


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
