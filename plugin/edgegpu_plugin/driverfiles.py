"""What of the NVIDIA driver a container needs, found on this machine: libraries, tools, firmware, sockets, nodes."""

import re
from dataclasses import dataclass
from pathlib import Path

from edgegpu_plugin.driverroot import LIBRARY_FOLDERS
from edgegpu_plugin.elf import soname
from edgegpu_plugin.errors import PluginError

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
_MPS = "tmp/nvidia-mps"
_OPTIX_DATA = "usr/share/nvidia/nvoptix.bin"
_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
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
    mps: Path | None = None
    """The folder in which MPS and its clients meet."""
    control_nodes: tuple[str, ...] = ()
    """Device nodes that every container needs, by their names in /dev."""

    def inside(self, path: Path) -> str:
        """Return where a path of this machine is for those who see the driver's root as `/`."""
        return str(Path("/") / path.relative_to(self.root))


def find(root: Path, *, version: str = "") -> DriverFiles:
    """Look for the driver's files below its root.

    Args:
        root: `/`, or the folder that the driver is installed under.
        version: what NVML says; taken from the names of the files where it is not known.

    Raises:
        PluginError: the driver's main libraries are not there.
    """
    version = version or _version(root)
    found = {stem: library for stem in _LIBRARIES if (library := _library(root, stem, version)) is not None}
    for stem in _NEEDED:
        if stem not in found:
            wanted = f"lib{stem}.so.{version or '1'}"
            raise PluginError(
                f"cannot find the driver's {wanted} under {root} (looked in {', '.join(LIBRARY_FOLDERS)}): "
                "install the whole driver, or set driver.root to where it is"
            )
    firmware = [root / f"{folder}/firmware/nvidia/{version}" for folder in ("lib", "usr/lib")] if version else []
    return DriverFiles(
        root=root,
        version=version,
        libraries=tuple(found.values()),
        tools=tuple(path for name in _TOOLS if (path := _first(root, _TOOL_FOLDERS, name)) is not None),
        read_only=tuple(path for path in (_existing(firmware), _existing([root / _OPTIX_DATA])) if path is not None),
        sockets=tuple(root / name for name in _SOCKETS if (root / name).exists()),
        mps=_existing([root / _MPS]),
        control_nodes=tuple(name for name in _CONTROL_NODES if (root / "dev" / name).exists()),
    )


def _version(root: Path) -> str:
    """Read the version from a library's name: that which its SONAME's link points to, else the highest."""
    for stem in _NEEDED:
        for folder in LIBRARY_FOLDERS:
            link = root / folder / f"lib{stem}.so.1"
            target = _VERSION.search(str(link.readlink())) if link.is_symlink() else None
            if target is not None:
                return target[1]
            versions = [
                match[1] for path in link.parent.glob(f"lib{stem}.so.*") if (match := _VERSION.search(path.name))
            ]
            if versions:
                return max(versions, key=lambda text: [int(part) for part in text.split(".")])
    return ""


def _library(root: Path, stem: str, version: str) -> Library | None:
    name = f"lib{stem}.so.{version}"
    path = _first(root, LIBRARY_FOLDERS, name) if version else None
    if path is None and stem in _NEEDED:
        path = _first(root, LIBRARY_FOLDERS, f"lib{stem}.so.1")
    if path is None:
        return None
    names = dict.fromkeys([path.name, soname(path) or path.name, _PLAIN_NAMES.get(stem, path.name)])
    return Library(path, tuple(names))


def _first(root: Path, folders: tuple[str, ...], name: str) -> Path | None:
    return _existing([root / folder / name for folder in folders])


def _existing(paths: list[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)
