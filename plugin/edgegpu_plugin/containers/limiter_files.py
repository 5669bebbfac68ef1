"""The limiter's two libraries on this machine: where they are, and whether they would work in a container."""

import platform
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.files import stamp
from edgegpu_plugin.cards.driver_root import open_to_others
from edgegpu_plugin.containers.driver_files import Library, soname
from edgegpu_plugin.errors import PluginError

FOLDER = "/run/edgegpu/container"
"""Where the limiter looks for the files of its container; it stands in the libraries themselves."""

PIPE_FOLDER = f"{FOLDER}/mps"
"""Where a container has the pipe folder of the MPS daemon; the limiter names it to the driver."""

DRIVER_FOLDER = f"{FOLDER}/driver"
"""Where the limiter opens the driver's own libraries in a container."""

PRELOAD_LIST = "/etc/ld.so.preload"
"""Where glibc's loader reads which libraries it loads into every program before all others."""

PRELOADED = f"{FOLDER}/preload/libcuda.so.1"
"""Where the limiter's library is in a container into which it is preloaded. The one for NVML is not: a second library
in every program costs more than a start may be slowed down."""

PRELOADED_OVER = "/usr/lib64/libcuda.so.1"
"""What a container's list of preloaded libraries names where the limiter lies over the driver's names."""

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The SONAMEs that the limiter stands in for, and the names under which it opens the driver's own libraries."""

MACHINES = {"x86_64": 62, "aarch64": 183}
"""ELF's number of each processor."""
_MACHINE_AT = 18
_MARK_BYTES = 32
_SETTINGS = {"folder": FOLDER, "driver": DRIVER_FOLDER}
_REMEDY = "install edgegpu's bundle again, or set isolation.mode to none and delete the pod"


@dataclass(frozen=True, slots=True)
class LimiterFiles:
    """The limiter's libraries by SONAME, as paths of this machine."""

    libraries: dict[str, Path]

    def over(self, library: Library) -> tuple[str | None, Path]:
        """Return the file that has a library's names in a container, with the SONAME that the limiter stands in for.

        The SONAME is None for the driver's other libraries, which stay what they are.
        """
        soname = next((name for name in library.names if name in self.libraries), None)
        return soname, library.path if soname is None else self.libraries[soname]


def default_folder() -> Path:
    """Return the folder of the libraries in the environment that this process runs from, or in its checkout."""
    root = Path(__file__).resolve().parents[3]
    return root / "build/limiter" if (root / "pyproject.toml").is_file() else root / "limiter"


def find_limiter(folder: Path | None = None, *, machine: str = platform.machine()) -> LimiterFiles:
    """Find the limiter's libraries.

    Args:
        folder: where they are; None for the environment's own.
        machine: the processor as `uname -m` names it.

    Raises:
        PluginError: one is missing, of another processor, open to other users, or made for other folders.
    """
    place = folder or default_folder()
    for name in LIBRARIES:
        problem = _problem(place / name, name, machine)
        if problem:
            raise PluginError(f"cannot use the limiter's {place / name}: {problem}: {_REMEDY}")
    return LimiterFiles({name: place / name for name in LIBRARIES})


def limiter_stamps(folder: Path | None = None) -> tuple[tuple[int, ...], ...]:
    """Return numbers that change when a library does; a missing one has none."""
    place = folder or default_folder()
    stamps: list[tuple[int, ...]] = []
    for name in LIBRARIES:
        try:
            found = (place / name).stat()
        except OSError:
            stamps.append(())
        else:
            stamps.append((*stamp(place / name), found.st_mode, found.st_uid))
    return tuple(stamps)


def _problem(path: Path, name: str, machine: str) -> str:
    """Return why a library cannot be mounted into containers; empty when it can."""
    try:
        content = path.read_bytes()
        others = open_to_others(path, below=path.parent)
    except OSError as error:
        return error.strerror or str(error)
    if soname(path) != name:
        return f"it is no library of the name {name}"
    number = int.from_bytes(content[_MACHINE_AT : _MACHINE_AT + 2], "little")
    if number != MACHINES.get(machine):
        return f"it is not made for this machine's processor ({machine})"
    if wrong := _other_folder(content):
        return f"it was not made for the folder {wrong}"
    return others


def is_limiter(content: bytes) -> bool:
    """Return whether a file is a library of the limiter that finds its files in the folders of a container."""
    return not _other_folder(content)


def _other_folder(content: bytes) -> str:
    """Return the folder for which a library was not made; empty when it was made for both."""
    for setting, value in _SETTINGS.items():
        mark = f"edgegpu-limiter-{setting}:".encode().ljust(_MARK_BYTES, b"\0")
        at = content.find(mark) + len(mark)
        if mark not in content or not content.startswith(value.encode() + b"\0", at):
            return value
    return ""
