"""The folders of containers that kubelet has no record of: they go once no other witness shows one alive."""

import logging
from collections.abc import Sequence
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.mounted_folders import mounted_folders
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.records.node_state import Snapshot

_LOG = logging.getLogger(__name__)


class AbandonedFolders:
    """Removes them. kubelet's checkpoint alone is no witness: it is lost or cut, and kubelet goes on without.

    A folder stays while processes count in it, while it is mounted in a container that lives, and while the API server
    shows a running container of which kubelet has no record: the folder may be that one's between two starts.
    """

    def __init__(self, folders: ContainerFolders) -> None:
        self._folders = folders

    def remove(self, folders: Sequence[Path], snapshot: Snapshot) -> None:
        """Remove those that nobody has any more; what cannot be removed, or asked, is logged and stays."""
        if snapshot.unrecorded:
            return
        left = [folder for folder in folders if not self._folders.users(folder)]
        for folder in self._unmounted(left):
            try:
                self._folders.remove(folder)
            except EdgegpuError as error:
                _LOG.warning("%s", error)
            else:
                _LOG.info("the folder of a container that is gone is removed: %s", folder.name)

    def has_mounted(self) -> bool:
        """Return whether a container that lives has one of the folders; False where processes cannot be asked."""
        names = {folder.name for folder in self._folders.names()}
        try:
            return bool(names) and not names.isdisjoint(mounted_folders(self._folders.root, self._folders.proc))
        except OSError as error:
            _LOG.warning("cannot look which containers have folders in %s: %s", self._folders.root, error)
            return False

    def check_free(self, folder: Path, uid: str, snapshot: Snapshot) -> None:
        """Check that a container's folder is not mounted in another one, of which kubelet has lost its record.

        kubelet may give the devices of such a container to another: its files would be made anew under the first.

        Raises:
            PluginError: it is.
        """
        is_doubtful = folder.exists() and any(other != uid for other, _ in snapshot.unrecorded)
        if is_doubtful and not self._unmounted([folder]):
            raise PluginError(
                "kubelet gave it devices of a container that still runs, and of which kubelet has lost its record: it "
                "starts when that one has ended; sudo edgegpu pods names it (unrecorded)"
            )

    def _unmounted(self, folders: Sequence[Path]) -> list[Path]:
        """Return those that no container has that lives; none where processes cannot be asked."""
        if not folders:
            return []
        try:
            mounted = mounted_folders(self._folders.root, self._folders.proc)
        except OSError as error:
            _LOG.warning("cannot look which containers have folders in %s: %s", self._folders.root, error)
            return []
        return [folder for folder in folders if folder.name not in mounted]
