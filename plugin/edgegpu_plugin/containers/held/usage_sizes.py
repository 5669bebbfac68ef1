"""Usage files that a container has made larger: they lie in the machine's memory, so they are cut back, and told."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.files import open_at_once
from edgegpu_plugin.containers.held.bypass import ContainerKey, CountedContainer
from edgegpu_plugin.containers.usage_file import form_of
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)

_MOST_BEYOND_BYTES = 2 << 20
"""What a file may take beyond its size: a file system that hands out huge pages rounds up to one."""
_TRIES = 5
"""A container that fills the file system again needs longer for that than the plugin for its file."""
ENLARGED = (
    "its programs have made their usage file larger, which takes the machine's memory, and it was cut back: look at "
    "what runs in it, then delete the pod"
)


@dataclass(eq=False, slots=True)
class UsageSizes:
    """What was found since each container's start; calls come from several threads, those of `look` from one."""

    _enlarged: Mapping[ContainerKey, Mapping[Path, int]] = field(default_factory=dict, init=False)
    """The files that were too large, with their inodes: a container's next start has a file of its own."""
    _told: frozenset[ContainerKey] = field(default=frozenset(), init=False)
    _cutting: threading.Lock = field(default_factory=threading.Lock, init=False)

    def reason(self, key: ContainerKey) -> str:
        """Return what a container has done to its usage file since its start; empty when nothing."""
        return ENLARGED if key in self._enlarged else ""

    def look(self, held: Mapping[ContainerKey, CountedContainer]) -> bool:
        """Cut files back that are too large; return whether a `reason` changed since the last look."""
        self.cut_back(held)
        before, self._told = self._told, frozenset(self._enlarged)
        return before != self._told

    def cut_back(self, held: Mapping[ContainerKey, CountedContainer]) -> bool:
        """Cut files back that are too large; return whether there was one.

        A file that is cut back to its size still has all that programs have mapped of it.
        """
        found: dict[ContainerKey, dict[Path, int]] = {}
        cut = False
        with self._cutting:
            for key, container in held.items():
                before = self._enlarged.get(key, {})
                for path in container.usage:
                    try:
                        now, most = path.stat(), form_of(path).bytes
                        is_large = now.st_size > most or now.st_blocks * 512 > most + _MOST_BEYOND_BYTES
                        cut |= is_large and _cut(path, most)
                    except OSError as error:  # it has just gone
                        _LOG.debug("cannot look at %s: %s", path, error)
                        continue
                    if is_large or before.get(path) == now.st_ino:
                        found.setdefault(key, {})[path] = now.st_ino
            for uid, name in found.keys() - self._enlarged.keys():
                _LOG.warning("container %s of pod %s: %s", name, uid, ENLARGED)
            self._enlarged = found
        return cut

    def with_room(self, write: Callable[[], None], held: Callable[[], Mapping[ContainerKey, CountedContainer]]) -> None:
        """Write files of a container; where others have filled their file system, cut that back first.

        Raises:
            PluginError: they cannot be written all the same.
        """
        for _ in range(_TRIES):
            try:
                return write()
            except PluginError:
                if not self.cut_back(held()):
                    raise
        return write()


def _cut(path: Path, most: int) -> bool:
    """Cut a file back; return whether that was possible: not while its container has a lease on it. Raises OSError."""
    try:
        file = open_at_once(path, os.O_WRONLY)
    except BlockingIOError:
        return False
    try:
        os.ftruncate(file, most)
    finally:
        os.close(file)
    return True
