"""Files of this machine that all containers have, kept open so that none of them can have a lease on one."""

import logging
import os
import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from edgegpu_plugin.containers.driver_files import DriverFiles
from edgegpu_plugin.containers.limiter_files import LimiterFiles

_LOG = logging.getLogger(__name__)


def shared_files(files: DriverFiles, limiter: LimiterFiles | None) -> Iterator[Path]:
    """Yield the files that come into containers from this machine: the driver's, and the limiter's."""
    opened = files.opened.values()
    for library in chain(files.libraries, *(one.libraries for one in opened)):
        yield library.path
    for path in chain(files.tools, files.read_only, files.unheld, *(one.read_only for one in opened)):
        yield from (one for one in path.rglob("*") if one.is_file()) if path.is_dir() else (path,)
    if limiter is not None:
        yield from limiter.libraries.values()


class KeptOpen:
    """Files that this process has open, to read them, and does not read.

    Root in a container may have a lease on a file of root's, from a read-only mount too. Who opens the file then waits
    for /proc/sys/fs/lease-break-time, 45 s: every program that loads it, in each container. The kernel gives no lease
    that stops readers while another has the file open (fcntl(2), F_SETLEASE).
    """

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}
        self._refused: set[Path] = set()
        weakref.finalize(self, _close, self._open)

    def keep(self, paths: Iterable[Path]) -> None:
        """Keep these files open and no others, each as what its path names now.

        What cannot be opened is told once, and tried again at the next call.
        """
        wanted = set(paths)
        for path in self._open.keys() - wanted:
            os.close(self._open.pop(path))
        for path in wanted:
            try:
                self._renew(path)
            except OSError as error:
                if path not in self._refused:
                    why = "a process has a lease on it" if isinstance(error, BlockingIOError) else error.strerror
                    _LOG.warning("%s is not kept open: %s; programs in containers may wait for it", path, why)
                self._refused.add(path)
            else:
                self._refused.discard(path)
        self._refused &= wanted

    def _renew(self, path: Path) -> None:
        held = self._open.get(path)
        if held is not None:
            if os.path.samestat(os.fstat(held), path.stat()):
                return
            os.close(self._open.pop(path))
        # Not waited for: whoever has a lease already would hold up the start of a container.
        self._open[path] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def _close(some: dict[Path, int]) -> None:
    for handle in some.values():
        os.close(handle)
