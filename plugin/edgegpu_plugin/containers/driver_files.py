"""The files of the NVIDIA driver that a container needs: libraries, tools, firmware, sockets, nodes.

A library is identified by its SONAME, the name under which programs ask the loader for it.
"""

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.driver_libraries import asked_libraries
from edgegpu_base.elf import ElfError, opened_library
from edgegpu_base.files import read_at_once
from edgegpu_core.choices.modes import Capability
from edgegpu_plugin.cards.driver_root import LIBRARY_FOLDERS, open_to_others, resolved
from edgegpu_plugin.errors import PluginError


def soname(path: Path) -> str | None:
    """Return a library's SONAME; None when it has none or is no 64-bit little-endian ELF file."""
    try:
        with opened_library(path) as library:
            return library.soname
    except (ElfError, OSError):
        return None


CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""The names in /dev of the device nodes that compute needs beside those of its cards."""

_LIBRARIES = (
    # compute
    "cuda",
    "cudadebugger",
    "nvidia-compiler",  # OpenCL's, until 460
    "nvidia-compiler-next",
    "nvidia-fatbinaryloader",  # libcuda is linked to it before 450
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
)
"""The stems of the driver's libraries, `libSTEM.so.VERSION`; those that a driver does not have are skipped."""

_OPENED_LIBRARIES = {
    Capability.GRAPHICS: (
        "EGL_nvidia",
        "GLESv1_CM_nvidia",
        "GLESv2_nvidia",
        "GLX_nvidia",
        "nvidia-eglcore",
        "nvidia-fbc",
        "nvidia-glcore",
        "nvidia-glsi",
        "nvidia-glvkspirv",
        "nvidia-ngx",
        "nvidia-rtcore",
        "nvidia-tls",
        "nvoptix",
    ),
    Capability.VIDEO: ("nvcuvid", "nvidia-encode", "nvidia-opticalflow"),
}
_OPENED_FILES = {
    Capability.GRAPHICS: (
        "{shared}/vulkan/icd.d/nvidia_icd.json",
        "{shared}/vulkan/icd.d/nvidia_icd.x86_64.json",
        "{shared}/vulkan/implicit_layer.d/nvidia_layers.json",
        "{shared}/glvnd/egl_vendor.d/10_nvidia.json",
        "usr/share/nvidia/nvoptix.bin",
    ),
    Capability.VIDEO: (),
}
"""What loaders of Vulkan and EGL read to find the driver, and OptiX's data, each in the first folder that has it."""
_SHARED_FOLDERS = ("usr/share", "etc", "usr/local/share")

_NEEDED = ("cuda", "nvidia-ml")
_OTHER_NAMES = {"nvidia-nvvm": "libnvidia-nvvm.so.4.0.0"}
"""Names of files that do not have the driver's version on every branch: this one has it after 470."""
_PLAIN_NAMES = {"cuda": "libcuda.so"}
"""Names without a version that programs open as well."""

_TOOLS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_TOOL_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "opt/bin", "usr/sbin")
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_OPENCL = "etc/OpenCL/vendors/nvidia.icd"
"""What OpenCL's loader reads to find the driver, of which nobody knows here whether it goes by libcuda: no
container that is held gets it."""
_SIMULATED = "var/lib/nvidia-sim"
"""The folder that the simulated driver shares with containers; no real driver has it."""
_ELF_32 = b"\x7fELF\x01"
_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")


@dataclass(frozen=True, slots=True)
class Library:
    """One library of the driver: its path, and the names that it must have in a container."""

    path: Path
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapabilityFiles:
    """The driver's files for one capability: libraries, and files that have the same path in a container."""

    libraries: tuple[Library, ...]
    read_only: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """The driver's files that were found; all paths are those of this machine, below `root`."""

    root: Path
    version: str
    """The driver's version; empty when its files carry none."""
    libraries: tuple[Library, ...]
    tools: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Folders that have the same path in a container: firmware."""
    sockets: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    """Folders that containers also write to: the simulated driver's. MPS has its own mounts (`mps/`)."""
    control_nodes: tuple[str, ...] = ()
    """The names in /dev of the device nodes that every container needs."""
    opened: Mapping[Capability, CapabilityFiles] = field(default_factory=dict)
    """What a held container gets where its pod asks for it, and any other container always."""
    unheld: tuple[Path, ...] = ()
    """Files of the same path that only a container gets which nothing holds."""
    missing: tuple[str, ...] = ()
    """The libraries that libcuda asks for by its own file, and that are not there."""
    left_out: tuple[str, ...] = ()
    """A text for each file that does not come into containers, because a user other than root could replace it."""

    def inside(self, path: Path) -> str:
        """Return a path of this machine as a path below the driver's root, with that as `/`."""
        return str(Path("/") / path.relative_to(self.root))


def find(root: Path, *, version: str = "") -> DriverFiles:
    """Find the driver's files below its root.

    Files that a user other than root could replace are left out: they would come into every container with a card.

    Args:
        root: `/`, or the folder that the driver is installed under.
        version: the driver's version by NVML; if it is empty, the version comes from the names of the files.

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
    missing = _take_asked(place, found, version)
    firmware = [f"{folder}/firmware/nvidia/{version}" for folder in ("lib", "usr/lib")] if version else []
    tools = [place.first((f"{folder}/{name}" for folder in _TOOL_FOLDERS), stat.S_ISREG) for name in _TOOLS]
    read_only = [place.first(firmware, stat.S_ISDIR)]
    opened = {one: files for one in Capability if (files := _capability(place, one, version)) is not None}
    return DriverFiles(
        root=root,
        version=version,
        libraries=tuple(found.values()),
        tools=tuple(path for path in tools if path is not None),
        read_only=tuple(path for path in read_only if path is not None),
        sockets=tuple(path for name in _SOCKETS if (path := place.first([name], stat.S_ISSOCK)) is not None),
        shared=tuple(path for path in [place.first([_SIMULATED], stat.S_ISDIR)] if path is not None),
        control_nodes=tuple(name for name in (*CONTROL_NODES, "nvidia-modeset") if _is_there(root / "dev" / name)),
        opened=opened,
        unheld=tuple(path for path in [place.first([_OPENCL], stat.S_ISREG)] if path is not None),
        missing=missing,
        left_out=tuple(dict.fromkeys(place.left_out)),
    )


def _take_asked(place: "_Place", found: dict[str, Library], version: str) -> tuple[str, ...]:
    """Take along what libcuda asks for by its own file and no list of ours has; return what of it is not there."""
    missing = []
    for name in asked_libraries(found["cuda"].path):
        stem = name.removeprefix("lib").partition(".so")[0]
        if stem not in found:
            library = _library(place, stem, version, name)
            if library is None:
                missing.append(name)
            else:
                found[stem] = library
    return tuple(missing)


def find_tool(root: Path, name: str) -> Path | None:
    """Return a program of the driver below its root; None when there is none that only root can replace."""
    return _Place(root).first((f"{folder}/{name}" for folder in _TOOL_FOLDERS), stat.S_ISREG)


class _Place:
    """A finder of files below a driver's root that only root can replace; it keeps why others were skipped."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out: list[str] = []
        self.library_folders = tuple(dict.fromkeys((*LIBRARY_FOLDERS, *_linked_folders(root))))

    def first(self, names: Iterable[str], kind: Callable[[int], bool]) -> Path | None:
        """Return the first of these paths that exists, is of the kind, and that only root can replace.

        Where a link in the driver's root would lead out of it for others, its target is returned.
        """
        for name in names:
            path = self.root / name
            try:
                real = resolved(path, below=self.root)
            except (OSError, ValueError):
                continue
            if self._is_good(path, real, kind):
                return path if _leads_to(path, real) else real
        return None

    def _is_good(self, path: Path, real: Path, kind: Callable[[int], bool]) -> bool:
        try:
            why = open_to_others(path, below=self.root)
            mode = real.stat().st_mode
        except OSError as error:
            why, mode = f"cannot look at it: {error.strerror or error}", 0
        if not why and not kind(mode):
            why = "it is of another kind"
        if not why and stat.S_ISREG(mode) and _is_of_32_bits(real):
            return False
        if why:
            self.left_out.append(f"{path} is left out: {why}")
        return not why


def _is_there(path: Path) -> bool:
    """Return whether a path exists; one that cannot be followed does not."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def _leads_to(path: Path, real: Path) -> bool:
    """Return whether this machine follows a path to the same file as the driver's own programs."""
    try:
        return path.samefile(real)
    except OSError:
        return False


def _is_of_32_bits(path: Path) -> bool:
    """Return whether a file is a 32-bit library or program: distributions keep such beside those of 64 bits."""
    try:
        return read_at_once(path, most=len(_ELF_32)) == _ELF_32
    except OSError:
        return False


def _linked_folders(root: Path) -> Iterator[str]:
    """Yield the folders below the root to which the main libraries' links lead: Debian's alternatives have others.

    Debian keeps each branch in a folder of its own, such as `nvidia/tesla-418`, beside which others may lie.
    """
    for stem in _NEEDED:
        for folder in LIBRARY_FOLDERS:
            target = _target(root / folder / f"lib{stem}.so.1", root)
            if target is not None and target.is_relative_to(root):
                yield str(target.parent.relative_to(root))


def _target(link: Path, root: Path) -> Path | None:
    """Return the file to which a link leads in the end; None where there is no link, or where it leads in a circle."""
    try:
        return resolved(link, below=root) if link.is_symlink() else None
    except (OSError, ValueError):
        return None


def _version(root: Path) -> str:
    """Return the version in a library's name: of the file that its SONAME's link leads to, else the highest."""
    for stem in _NEEDED:
        for folder in LIBRARY_FOLDERS:
            link = root / folder / f"lib{stem}.so.1"
            target = _VERSION.search(str(_target(link, root) or ""))
            if target is not None:
                return target[1]
            versions = [
                match[1] for path in link.parent.glob(f"lib{stem}.so.*") if (match := _VERSION.search(path.name))
            ]
            if versions:
                return max(versions, key=lambda text: [int(part) for part in text.split(".")])
    return ""


def _capability(place: _Place, capability: Capability, version: str) -> CapabilityFiles | None:
    """Return the files for a capability; None where the driver was installed without its libraries."""
    some = (_library(place, stem, version) for stem in _OPENED_LIBRARIES[capability])
    libraries = tuple(library for library in some if library is not None)
    if not libraries:
        return None
    paths = (
        place.first(dict.fromkeys(name.format(shared=folder) for folder in _SHARED_FOLDERS), stat.S_ISREG)
        for name in _OPENED_FILES[capability]
    )
    return CapabilityFiles(libraries, tuple(path for path in paths if path is not None))


def _library(place: _Place, stem: str, version: str, *others: str) -> Library | None:
    """Return a library of the driver by its stem, or else by other names; None where there is none."""
    names = [f"lib{stem}.so.{version}"] if version else []
    names += [f"lib{stem}.so.1"] if stem in _NEEDED else []
    names += [_OTHER_NAMES[stem]] if stem in _OTHER_NAMES else []
    names += others
    path = place.first((f"{folder}/{name}" for name in names for folder in place.library_folders), stat.S_ISREG)
    if path is None:
        return None
    inside = dict.fromkeys([path.name, soname(path) or path.name, _PLAIN_NAMES.get(stem, path.name)])
    return Library(path, tuple(inside))
