"""The Kubernetes client of the agent: the base's, with strategic merge patches under our manager's name, and PUT."""

from edgegpu_base.kube import Json, KubeClient

MANAGER = "edgegpu-agent"
"""The name under which the API server records our fields (managedFields) and its audit log our writes."""

_STRATEGIC = "application/strategic-merge-patch+json"


class AgentClient(KubeClient):
    """A client of one API server; its methods may be called from any thread."""

    def strategic(self, path: str, change: Json, *, version: str) -> Json:
        """Patch an object under a resourceVersion: lists of containers merge by name, null removes a key.

        Raises:
            Conflict: the object has another resourceVersion by now.
            KubeError: as for every call.
        """
        body = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}}
        return self._call("PATCH", path, body=body, params={"fieldManager": MANAGER}, content_type=_STRATEGIC)

    def replace(self, path: str, item: Json) -> Json:
        """Replace the version of an object that `item` names. Raises Conflict when there is a newer one."""
        return self._call("PUT", path, body=item, params={"fieldManager": MANAGER})
