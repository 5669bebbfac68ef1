"""A container's state in its own folder: its programs can read it there, and cannot change it."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from edgegpu_base.process.tasks import Repeated
from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)


class StateFiles:
    """Writes the file `state`: `enforced`, or `degraded` and why."""

    def __init__(self, folders: ContainerFolders, with_room: Callable[[Callable[[], None]], None]) -> None:
        """Write into these folders.

        Args:
            folders: the containers' folders.
            with_room: makes a write, and room for it where containers have filled the file system.
        """
        self._folders = folders
        self._with_room = with_room
        self._failed: set[Path] = set()
        """Folders whose last write has failed: that is logged once."""

    def tell(self, folders: Iterable[Path], found: ContainerIsolation) -> None:
        """Write a container's state into those of its folders that are there."""
        text = f"{found.state}: {found.reason}\n" if found.reason else f"{found.state}\n"
        for folder in filter(Path.is_dir, folders):
            try:
                self._with_room(partial(self._folders.write_state, folder, text))
            except PluginError as error:
                if folder not in self._failed:
                    _LOG.warning("%s", error)
                self._failed.add(folder)
            else:
                self._failed.discard(folder)


LOOK_S = 2.0
"""Seconds between two looks at what containers are held to."""


class StateLook(Repeated):
    """Has containers told again and again, also while the driver does not answer."""

    def __init__(self, tell: Callable[[], None], folders: ContainerFolders, *, look_s: float = LOOK_S) -> None:
        """Take what tells them, where there are some."""
        super().__init__(lambda: tell() if folders.names() else None, every_s=look_s)
