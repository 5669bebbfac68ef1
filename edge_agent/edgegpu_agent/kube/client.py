"""The Kubernetes client of the agent: the base's, with strategic merge patches under our manager's name, and PUT."""

from pathlib import Path
from typing import Self

from edgegpu_base.kube import Conflict as KubeConflict
from edgegpu_base.kube import Forbidden as KubeForbidden
from edgegpu_base.kube import Json, KubeClient, KubeError, load_kubeconfig
from edgegpu_base.kube import NotFound as KubeGone
from edgegpu_base.kube import Unavailable as KubeUnavailable

__all__ = [
    "MANAGER",
    "AgentClient",
    "Json",
    "KubeConflict",
    "KubeError",
    "KubeForbidden",
    "KubeGone",
    "KubeUnavailable",
]

MANAGER = "edgegpu-agent"
"""The name under which the API server records our fields (managedFields) and its audit log our writes."""

_STRATEGIC = "application/strategic-merge-patch+json"


class AgentClient(KubeClient):
    """A client of one API server; its methods may be called from any thread."""

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """Return a client for a kubeconfig, which is read again whenever it changes.

        Raises:
            KubeconfigError: the kubeconfig cannot be used.
            KubeError: its certificates cannot be used.
        """
        return cls(load_kubeconfig(path))

    def strategic(self, path: str, change: Json, *, version: str) -> Json:
        """Patch an object under a resourceVersion: lists of containers merge by name, null removes a key.

        Raises:
            KubeConflict: the object has another resourceVersion by now.
            KubeError: as for every call.
        """
        body = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}}
        return self._call("PATCH", path, body=body, params={"fieldManager": MANAGER}, content_type=_STRATEGIC)

    def replace(self, path: str, item: Json) -> Json:
        """Replace the version of an object that `item` names. Raises KubeConflict when there is a newer one."""
        return self._call("PUT", path, body=item, params={"fieldManager": MANAGER})
