"""A Lease of the cluster: read, create, take and renew, each under the resourceVersion that was seen."""

from dataclasses import dataclass
from datetime import UTC, datetime

from edgegpu_agent.kube.client import AgentClient
from edgegpu_base.kube import Conflict, Json, NotFound


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease as it was read; `transitions` counts the changes of its holder."""

    holder: str
    version: str
    transitions: int = 0


class Leases:
    """The client for one lease; every call raises KubeError when the API server is away or refuses."""

    def __init__(self, client: AgentClient, *, namespace: str, name: str, duration_s: int) -> None:
        self._client = client
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._duration_s = duration_s

    def read(self) -> LeaseRecord | None:
        """Return the lease; None when there is none."""
        try:
            return _record(self._client.get(f"{self._folder}/{self._name}"))
        except NotFound:
            return None

    def write(self, holder: str, now_s: float, *, over: LeaseRecord | None) -> LeaseRecord | None:
        """Take or renew the lease over the version that was seen; return None when somebody was quicker.

        Args:
            holder: the new holder.
            now_s: seconds since 1970, for people who read the lease.
            over: the lease as it was seen; None to create it.
        """
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Json = {"holderIdentity": holder, "leaseDurationSeconds": self._duration_s, "renewTime": stamp}
        metadata: Json = {"name": self._name, "namespace": self._namespace}
        transitions = 0 if over is None else over.transitions + (over.holder != holder)
        spec["leaseTransitions"] = transitions
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            if over is None:
                return _record(self._client.create(self._folder, body))
            metadata["resourceVersion"] = over.version
            return _record(self._client.replace(f"{self._folder}/{self._name}", body))
        except (Conflict, NotFound):
            return None


def _record(item: Json) -> LeaseRecord:
    spec = item.get("spec") or {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        version=str(item["metadata"]["resourceVersion"]),
        transitions=int(spec.get("leaseTransitions") or 0),
    )
