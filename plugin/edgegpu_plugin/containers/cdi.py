"""The CDI spec, by which containerd brings each card into a container without an NVIDIA toolkit on the machine."""

import json
import os
import platform
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgegpu_base.files import write_if_changed
from edgegpu_core.choices.modes import Capability
from edgegpu_core.inventory import Card
from edgegpu_plugin.containers.driver_files import DriverFiles, Library
from edgegpu_plugin.containers.image.loader_cache import cache_hook
from edgegpu_plugin.containers.limiter_files import DRIVER_FOLDER, LimiterFiles

KIND = "edgegpu.io/gpu"
FILE_NAME = "edgegpu.json"

LIMITED_KIND = "edgegpu.io/limited-gpu"
"""The same cards, with the limiter over the driver's libraries. A kind of its own: kubelet replays a pod's names for
the pod's life, and what they bring must not change with the setting."""
LIMITED_FILE_NAME = "edgegpu-limited.json"

CAPABILITY_KIND = "edgegpu.io/capability"
"""What of the driver a held container gets beside compute, where its pod asks for it."""
CAPABILITY_FILE_NAME = "edgegpu-capability.json"

_FILE_NAMES = {KIND: FILE_NAME, LIMITED_KIND: LIMITED_FILE_NAME, CAPABILITY_KIND: CAPABILITY_FILE_NAME}

_VERSION = "0.5.0"
"""The newest that containerd 1.7 understands; nothing newer is needed."""

_READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_SOCKET = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]
_READ_WRITE = ["rbind", "nosuid", "nodev", "rprivate"]


def cdi_name(uuid: str, *, limited: bool = False) -> str:
    """Return the CDI name of a card: `edgegpu.io/gpu=GPU-…`, or that with the limiter."""
    return f"{LIMITED_KIND if limited else KIND}={_device_name(uuid)}"


def capability_name(capability: str) -> str:
    """Return the CDI name of a capability: `edgegpu.io/capability=graphics`."""
    return f"{CAPABILITY_KIND}={capability}"


def build_spec(
    cards: Sequence[Card],
    files: DriverFiles,
    *,
    limiter: LimiterFiles | None = None,
    hook: Path | None = None,
    machine: str = platform.machine(),
) -> dict[str, Any]:
    """Return the CDI spec: one device for each card, and the edits that all of them need.

    Device nodes are named with their numbers of this moment: containerd looks up a missing number once and keeps it as
    long as the file stays as it is, also when a reloaded driver has other numbers (`fillMissingInfo` in CDI's Go
    library, which writes into the cached spec). Libraries go into both usual folders under file name and SONAME,
    because images differ; the hook adds them to the image's loader cache, for programs that ask `ldconfig -p`.

    Args:
        cards: the cards, at least one.
        files: the driver's files.
        limiter: the limiter's libraries where they lie over the driver's; None for the driver alone.
        hook: the program that adds the libraries to a container's loader cache; None for no hook.
        machine: the processor as `uname -m` names it, for Debian's library folder.
    """
    return {
        "cdiVersion": _VERSION,
        "kind": KIND if limiter is None else LIMITED_KIND,
        "containerEdits": {
            # comes after the pod's own environment, so that an nvidia default runtime adds nothing
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [_node(files.root, name) for name in files.control_nodes],
            **_hooks(hook, _base_libraries(files, limiter), machine),
            "mounts": list(_mounts(files, limiter, machine)),
        },
        "devices": [
            {
                "name": _device_name(card.uuid),
                "containerEdits": {"deviceNodes": [_node(files.root, name) for name in node_names(card)]},
            }
            for card in cards
        ],
    }


def build_capabilities(
    files: DriverFiles, *, hook: Path | None = None, machine: str = platform.machine()
) -> dict[str, Any] | None:
    """Return the CDI spec with one device for each capability that the driver has; None where it has none."""
    devices = [
        {
            "name": capability.value,
            "containerEdits": {
                **_hooks(hook, opened.libraries, machine),
                "mounts": list(_opened(files, [capability], machine)),
            },
        }
        for capability, opened in files.opened.items()
    ]
    return {"cdiVersion": _VERSION, "kind": CAPABILITY_KIND, "devices": devices} if devices else None


def write_spec(folder: Path, spec: dict[str, Any]) -> bool:
    """Write the spec to containerd's folder if its content is new, and return whether it was.

    Raises:
        PluginError: the spec cannot be written.
    """
    return write_if_changed(folder / _FILE_NAMES[spec["kind"]], json.dumps(spec, indent=1) + "\n")


def node_names(card: Card) -> tuple[str, ...]:
    """Return the names in /dev of the device nodes that belong to a card alone."""
    return (f"nvidia{card.minor}", *(f"nvidia-caps/nvidia-cap{cap}" for cap in card.caps))


def _device_name(uuid: str) -> str:
    """Return a card's device name for CDI, without slashes: drivers before 470 wrote `MIG-GPU-…/7/0`."""
    return uuid.replace("/", "_")


def _node(root: Path, name: str) -> dict[str, Any]:
    """Return a device node for the spec; without numbers where there is none, which containerd reports then."""
    node: dict[str, Any] = {"path": f"/dev/{name}", "permissions": "rw"}
    path = root / "dev" / name
    if root != Path("/"):
        node["hostPath"] = str(path)
    try:
        state = path.lstat()
    except OSError:
        return node
    if stat.S_ISCHR(state.st_mode):
        node |= {"type": "c", "major": os.major(state.st_rdev), "minor": os.minor(state.st_rdev)}
    return node


def _mounts(files: DriverFiles, limiter: LimiterFiles | None, machine: str) -> Iterator[dict[str, Any]]:
    for library in files.libraries:
        soname, over = (None, library.path) if limiter is None else limiter.over(library)
        yield from _everywhere(over, library, machine)
        if soname is not None:
            yield _mount(library.path, f"{DRIVER_FOLDER}/{soname}", _READ_ONLY)
    if limiter is None:
        yield from _opened(files, files.opened, machine)
        for path in files.unheld:
            yield _mount(path, files.inside(path), _READ_ONLY)
    for tool in files.tools:
        yield _mount(tool, f"/usr/bin/{tool.name}", _READ_ONLY)
    for path in files.read_only:
        yield _mount(path, files.inside(path), _READ_ONLY)
    for socket in files.sockets:
        yield _mount(socket, files.inside(socket), _SOCKET)
    for path in files.shared:
        yield _mount(path, files.inside(path), _READ_WRITE)


def _base_libraries(files: DriverFiles, limiter: LimiterFiles | None) -> Iterator[Library]:
    """Yield the libraries that each container with a card has."""
    yield from files.libraries
    if limiter is None:
        for opened in files.opened.values():
            yield from opened.libraries


def _hooks(program: Path | None, libraries: Iterable[Library], machine: str) -> dict[str, Any]:
    """Return the hooks' part of edits; it stands before another, so that edgegpu-farewell can take it out."""
    return {} if program is None else {"hooks": [cache_hook(program, libraries, library_folders(machine))]}


def library_folders(machine: str) -> tuple[str, str]:
    """Return both usual folders of libraries in images, in each of which every library is mounted."""
    return f"/usr/lib/{machine}-linux-gnu", "/usr/lib64"


def _opened(files: DriverFiles, some: Iterable[Capability], machine: str) -> Iterator[dict[str, Any]]:
    for capability in some:
        for library in files.opened[capability].libraries:
            yield from _everywhere(library.path, library, machine)
        for path in files.opened[capability].read_only:
            yield _mount(path, files.inside(path), _READ_ONLY)


def _everywhere(file: Path, library: Library, machine: str) -> Iterator[dict[str, Any]]:
    """Yield the mounts of a file under all names of a library, in both usual folders."""
    for folder in library_folders(machine):
        for name in library.names:
            yield _mount(file, f"{folder}/{name}", _READ_ONLY)


def _mount(host: Path, container: str, options: list[str]) -> dict[str, Any]:
    return {"hostPath": str(host), "containerPath": container, "options": options}
