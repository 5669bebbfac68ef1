"""Copies of the limiter's libraries in which the functions that this machine's driver lacks are not found.

Programs ask the loader for a function to learn whether the driver has it (CUDA's runtime does, and NVIDIA's Go bindings
of NVML), and take another form where it is absent. One that is there and is not supported misleads them.
"""

import logging
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from edgegpu_base.elf import library_of, opened_library, without
from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import read_at_once, stamp, write_atomic
from edgegpu_core.reasons import NEWER_DRIVER_REMEDY, unknown_functions
from edgegpu_plugin.containers.driver_files import DriverFiles
from edgegpu_plugin.containers.limiter_files import LimiterFiles
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)

_DEBUGGERS = "cudbg"
"""How the names begin that libcuda has for debuggers, which find them in the driver's own library."""


class LimiterCopies:
    """The copies, in a folder of this machine; calls come from several threads.

    Their paths stay the same whatever the driver and edgegpu's version are. A copy is replaced by rename: containers
    that run keep the file that they have mounted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._made: tuple[object, LimiterFiles] | None = None
        self._unlisted: Mapping[str, tuple[str, ...]] = {}
        self._problem = ""

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The functions that the driver has and the limiter's lists have not: programs in containers find none."""
        return tuple(name for names in self._unlisted.values() for name in names)

    def of(self, limiter: LimiterFiles, files: DriverFiles) -> LimiterFiles:
        """Return the limiter's libraries as containers get them over a driver.

        Where no copy can be made, these are the libraries themselves: they hold as well, and programs find functions
        that answer that the driver does not support them.
        """
        real = _real_libraries(limiter, files)
        if not real:
            return limiter
        with self._lock:
            try:
                copies = self._copies(limiter, real)
            except (EdgegpuError, OSError) as error:
                problem = f"cannot fit the limiter to the driver's functions: {error}"
                if problem != self._problem:
                    _LOG.warning("%s; programs find functions that this driver does not have", problem)
                self._problem = problem
                return limiter
            self._problem = ""
            return copies

    def _copies(self, limiter: LimiterFiles, real: Mapping[str, Path]) -> LimiterFiles:
        copies = LimiterFiles({name: self._folder / name for name in limiter.libraries})
        sources = [*limiter.libraries.values(), *real.values()]
        if self._made is not None and self._made == (self._stamps(sources, copies), copies):
            return copies
        self._folder.mkdir(parents=True, exist_ok=True)
        if os.statvfs(self._folder).f_flag & os.ST_NOEXEC:  # a mount of a copy in a container would have that too
            raise PluginError(f"the file system of {self._folder} is mounted with noexec")
        unlisted = {}
        for name, path in limiter.libraries.items():
            unlisted[name] = _make(copies.libraries[name], path, real.get(name))
        if unlisted != self._unlisted and any(unlisted.values()):
            names = [name for some in unlisted.values() for name in some]
            _LOG.warning("%s; %s", unknown_functions(names), NEWER_DRIVER_REMEDY)
        self._unlisted = unlisted
        self._made = (self._stamps(sources, copies), copies)
        return copies

    @staticmethod
    def _stamps(sources: list[Path], copies: LimiterFiles) -> list[tuple[int, ...]]:
        return [stamp(path) for path in (*sources, *copies.libraries.values()) if path.exists()]


def _real_libraries(limiter: LimiterFiles, files: DriverFiles) -> dict[str, Path]:
    """Return the driver's own libraries by the SONAMEs that the limiter stands in for."""
    found = ((limiter.over(library)[0], library.path) for library in files.libraries)
    return {name: path for name, path in found if name is not None}


def _make(copy: Path, source: Path, real: Path | None) -> tuple[str, ...]:
    """Make a copy of a library, unless it is there; return the functions that only the driver's library has.

    A driver's library that cannot be read as one leaves the copy whole.
    """
    content, unlisted = source.read_bytes(), list[str]()
    if real is not None:
        listed = library_of(content).exports()
        with opened_library(real) as library:
            exported = library.exports()
        content = without(content, [name for name in listed if listed[name] and name not in exported])
        unlisted = [name for name in sorted(exported) if exported[name] and name not in listed]
    if not _holds(copy, content):
        new = copy.with_name(f".{copy.name}.new")
        write_atomic(new, content)
        shutil.copystat(source, new)  # with the label by which SELinux lets containers read it
        new.replace(copy)
    return tuple(name for name in unlisted if not name.startswith(_DEBUGGERS))


def _holds(copy: Path, content: bytes) -> bool:
    """Return whether a copy has this content; one that is missing, or on which a container has a lease, has not."""
    try:
        return read_at_once(copy) == content
    except OSError:
        return False
