"""What of the NVIDIA driver a container needs, found on this machine: libraries, tools, firmware, sockets, nodes."""

import contextlib
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edgegpu_plugin.containers.driver_root import LIBRARY_FOLDERS
from edgegpu_plugin.containers.elf import soname
from edgegpu_plugin.containers.ownership import open_to_others
from edgegpu_plugin.errors import PluginError

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""The device nodes that compute needs beside its cards', by their names in /dev."""

_LIBRARIES = (
    # compute
    "cuda",
    "cudadebugger",
    "nvidia-gpucomp",
    "nvidia-nvvm",
    "nvidia-nvvm70",
    "nvidia-opencl",
    "nvidia-pkcs11",
    "nvidia-pkcs11-openssl3",
    "nvidia-ptxjitcompiler",
    "nvidia-sandboxutils",
    "nvidia-tileiras",
    "nvidia-allocator",
    # management
    "nvidia-cfg",
    "nvidia-ml",
    # video and ray tracing
    "nvcuvid",
    "nvidia-encode",
    "nvidia-fbc",
    "nvidia-ngx",
    "nvidia-opticalflow",
    "nvidia-rtcore",
    "nvoptix",
)
"""The driver's libraries by their stems, `libSTEM.so.VERSION`; those that a driver does not have are passed over."""

_NEEDED = ("cuda", "nvidia-ml")
_PLAIN_NAMES = {"cuda": "libcuda.so"}
"""Names without a version that programs open as well."""

_TOOLS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_TOOL_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "opt/bin")
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_SIMULATED = "var/lib/nvidia-sim"
"""What the simulated driver shares with containers; no real one has it."""
_OPTIX_DATA = "usr/share/nvidia/nvoptix.bin"
_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")


@dataclass(frozen=True, slots=True)
class Library:
    """One library of the driver: where it is, and the names that it must have in a container."""

    path: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """What was found; all paths are those of this machine, below `root`."""

    root: Path
    version: str
    """Empty for a driver whose files carry none."""
    libraries: tuple[Library, ...]
    tools: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Files and folders that have the same path in a container: firmware, ray tracing's data."""
    sockets: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    """Folders that containers write to as well: the simulated driver's. MPS has none here, `/tmp` is everybody's."""
    control_nodes: tuple[str, ...] = ()
    """Device nodes that every container needs, by their names in /dev."""
    left_out: tuple[str, ...] = ()
    """Why files that are there do not come into containers, a text for each: others than root could replace them."""

    def inside(self, path: Path) -> str:
        """Return where a path of this machine is for those who see the driver's root as `/`."""
        return str(Path("/") / path.relative_to(self.root))


def find(root: Path, *, version: str = "") -> DriverFiles:
    """Look for the driver's files below its root.

    What somebody else than root could replace is left out: it would come into every container with a card.

    Args:
        root: `/`, or the folder that the driver is installed under.
        version: what NVML says; taken from the names of the files where it is not known.

    Raises:
        PluginError: the driver's main libraries are not there.
    """
    place = _Place(root)
    version = version or _version(root)
    found = {stem: library for stem in _LIBRARIES if (library := _library(place, stem, version)) is not None}
    for stem in _NEEDED:
        if stem not in found:
            wanted = f"lib{stem}.so.{version or '1'}"
            why = "".join(f"; {text}" for text in place.left_out)
            raise PluginError(
                f"cannot find the driver's {wanted} under {root} (looked in {', '.join(LIBRARY_FOLDERS)}{why}): "
                "install the whole driver, or set driver.root to where it is"
            )
    firmware = [f"{folder}/firmware/nvidia/{version}" for folder in ("lib", "usr/lib")] if version else []
    tools = [place.first((f"{folder}/{name}" for folder in _TOOL_FOLDERS), stat.S_ISREG) for name in _TOOLS]
    read_only = [place.first(firmware, stat.S_ISDIR), place.first([_OPTIX_DATA], stat.S_ISREG)]
    return DriverFiles(
        root=root,
        version=version,
        libraries=tuple(found.values()),
        tools=tuple(path for path in tools if path is not None),
        read_only=tuple(path for path in read_only if path is not None),
        sockets=tuple(path for name in _SOCKETS if (path := place.first([name], stat.S_ISSOCK)) is not None),
        shared=tuple(path for path in [place.first([_SIMULATED], stat.S_ISDIR)] if path is not None),
        control_nodes=tuple(name for name in (*CONTROL_NODES, "nvidia-modeset") if _is_there(root / "dev" / name)),
        left_out=tuple(dict.fromkeys(place.left_out)),
    )


class _Place:
    """Finds files below a driver's root that nobody but root can replace, and keeps why others were passed over."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out: list[str] = []

    def first(self, names: Iterable[str], kind: Callable[[int], bool]) -> Path | None:
        """Return the first of these that is there, is of the kind, and is root's alone."""
        return next((path for name in names if self._is_good(path := self.root / name, kind)), None)

    def _is_good(self, path: Path, kind: Callable[[int], bool]) -> bool:
        if not _is_there(path):
            return False
        try:
            why = open_to_others(path, below=self.root)
            mode = path.stat().st_mode
        except OSError as error:
            why, mode = f"cannot look at it: {error.strerror or error}", 0
        if not why and not kind(mode):
            why = "it is of another kind"
        if why:
            self.left_out.append(f"{path} is left out: {why}")
        return not why


def _is_there(path: Path) -> bool:
    """Whether a path leads to something; one that cannot be followed leads to nothing."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def _version(root: Path) -> str:
    """Read the version from a library's name: that which its SONAME's link points to, else the highest."""
    for stem in _NEEDED:
        for folder in LIBRARY_FOLDERS:
            link, target = root / folder / f"lib{stem}.so.1", None
            with contextlib.suppress(OSError):  # no link
                target = _VERSION.search(str(link.readlink()))
            if target is not None:
                return target[1]
            versions = [
                match[1] for path in link.parent.glob(f"lib{stem}.so.*") if (match := _VERSION.search(path.name))
            ]
            if versions:
                return max(versions, key=lambda text: [int(part) for part in text.split(".")])
    return ""


def _library(place: _Place, stem: str, version: str) -> Library | None:
    names = [f"lib{stem}.so.{version}"] if version else []
    names += [f"lib{stem}.so.1"] if stem in _NEEDED else []
    path = place.first((f"{folder}/{name}" for name in names for folder in LIBRARY_FOLDERS), stat.S_ISREG)
    if path is None:
        return None
    inside = dict.fromkeys([path.name, soname(path) or path.name, _PLAIN_NAMES.get(stem, path.name)])
    return Library(path, tuple(inside))
