"""The versions of this node's kubelet and container runtime, on the disk over restarts."""

import logging
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_base.kube import KubeError, KubeObjects
from edgegpu_core.injection import NodeVersions

_LOG = logging.getLogger(__name__)


class NodeVersionsFile:
    """The file `kubelet-version` in the state folder, for a start of the plugin while the API server is away."""

    def __init__(self, state: Path, objects: KubeObjects, node: str) -> None:
        self._path, self._objects, self._node = state / "kubelet-version", objects, node

    def saved(self) -> NodeVersions:
        """Return the versions as they were last; empty where they are not known."""
        try:
            line = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            line = ""
        return NodeVersions.of_line(line)

    def save(self, versions: NodeVersions) -> None:
        """Save the versions; a failed write is logged."""
        try:
            write_if_changed(self._path, versions.line + "\n")
        except EdgegpuError as error:
            _LOG.warning("%s", error)

    def ask(self) -> NodeVersions:
        """Return the versions by the API server; empty when it does not give them."""
        try:
            return NodeVersions.of(self._objects.get_node(self._node))
        except KubeError as error:
            _LOG.warning("cannot learn kubelet's version, by which cards come into containers: %s", error)
            return NodeVersions()
