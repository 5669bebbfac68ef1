"""The plugin's client with what the agent's calls need beyond it: strategic patches by a named manager, and PUT."""

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
"""Under this name the API server keeps which fields are ours (managedFields), and its audit log our writes."""

_STRATEGIC = "application/strategic-merge-patch+json"


class AgentClient(KubeClient):
    """A client of one API server; its methods may be called from any thread."""

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """Return a client by a kubeconfig, which is read again whenever it changes.

        Raises:
            KubeconfigError: it cannot be used.
            KubeError: its certificates cannot.
        """
        return cls(load_kubeconfig(path))

    def strategic(self, path: str, change: Json, *, version: str) -> Json:
        """Change an object as it was at a resource version: lists of containers merge by name, null takes away.

        Raises:
            KubeConflict: it is of another version by now.
            KubeError: as for every call.
        """
        body = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}}
        return self._call("PATCH", path, body=body, params={"fieldManager": MANAGER}, content_type=_STRATEGIC)

    def replace(self, path: str, item: Json) -> Json:
        """Put an object in the place of the version that it names. Raises KubeConflict when that is over."""
        return self._call("PUT", path, body=item, params={"fieldManager": MANAGER})
