"""Injection without CDI and without the nvidia runtime: device nodes and files in kubelet's answer."""

import platform
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import remove_placeholder, write_if_changed
from edgegpu_core.choices.modes import Capability
from edgegpu_core.inventory import Card
from edgegpu_plugin.containers import driver_files
from edgegpu_plugin.containers.cdi import library_folders, node_names
from edgegpu_plugin.containers.driver_files import CONTROL_NODES, DriverFiles
from edgegpu_plugin.containers.image.loader_cache import TRITON_FOLDER
from edgegpu_plugin.containers.limiter_files import DRIVER_FOLDER, LIBRARIES, PRELOAD_LIST, PRELOADED, LimiterFiles
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Allocation, DeviceNode, Mount

_MINIMUM_LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
"""The libraries that a container always gets, also while the driver's files are unknown."""

_PRELOAD_NAME = "ld.so.preload"
"""The list with the limiter's library, beside the links; it is mounted as it is."""

_ABSENT = "absent"
"""The target of a link whose file this driver does not have: without a target the container would not start."""


@dataclass(eq=False, slots=True, kw_only=True)
class DeviceNodeInjection:
    """Injection by links of ours, whose targets follow the driver.

    kubelet stores the answer for a pod's life and replays it after a reboot, while the driver's version and the
    numbers of the cards' nodes change. So the host path of each file and node is a link in a folder of ours, made anew
    before each start (containerd follows links of mounts and devices). A pod does not see its card when the node's
    number has changed since the pod was admitted, and never sees another card.
    """

    root: Path
    """The driver's root."""
    folder: Path
    """The folder of the links; a reboot may empty it."""
    _files: DriverFiles | None = field(default=None, init=False)

    @property
    def is_made(self) -> bool:
        """Whether the driver's files are known."""
        return self._files is not None

    def allocation(
        self, cards: Sequence[Card], *, limited: bool = False, capabilities: Collection[str] = ()
    ) -> Allocation:
        """Return what kubelet shall give a container with these cards.

        Args:
            cards: the cards.
            limited: whether the limiter lies over the driver.
            capabilities: what of the driver a container gets then beside compute; one without the limiter has all.
        """
        files = self._known()
        control = CONTROL_NODES if files is None else files.control_nodes
        devices = [DeviceNode(f"/dev/{name}", str(self.root / "dev" / name)) for name in control]
        for card in cards:
            for number, name in enumerate(node_names(card)):
                devices.append(DeviceNode(f"/dev/{name}", str(self._node_link(card, number))))
        # The first keeps an nvidia runtime from adding cards. Both override the image's variable, not the pod's.
        return Allocation(
            envs={"NVIDIA_VISIBLE_DEVICES": "void", TRITON_FOLDER: library_folders(platform.machine())[0]},
            devices=devices,
            mounts=list(self._mounts(files, capabilities if limited else None)),
        )

    def preload(self) -> tuple[Mount, ...]:
        """Return what puts the limiter before every program of a container whose driver somebody else brings.

        Nothing is returned while the driver's files are unknown: the limiter opens the driver's own library as a file
        that is mounted beside it.
        """
        if self._known() is None:
            return ()
        files = self.folder / "files"
        return (
            Mount(PRELOAD_LIST, str(self.folder / _PRELOAD_NAME)),
            Mount(PRELOADED, str(files / _limiter(Path(PRELOADED).name))),
            *(Mount(f"{DRIVER_FOLDER}/{name}", str(files / name)) for name in LIBRARIES),
        )

    @property
    def own_files(self) -> tuple[Path, Path]:
        """Return the files that `make` makes for all containers, beside the links."""
        return self.folder / _PRELOAD_NAME, self.folder / _ABSENT

    def make(self, cards: Iterable[Card], files: DriverFiles, limiter: LimiterFiles | None = None) -> None:
        """Point the links to this driver's files, to the limiter's where it can be used, and to these cards' nodes.

        Raises:
            PluginError: a link cannot be made.
        """
        self._files = files
        libraries = _libraries(files, tuple(files.opened))
        wanted = {self.folder / "files" / _plain(name, files.version): path for name, path in libraries}
        read_only = (*files.unheld, *(path for one in files.opened.values() for path in one.read_only))
        wanted |= {self._file_link(path): path for path in read_only}
        wanted |= {self.folder / "files" / path.name: path for path in files.tools}
        if limiter is not None:
            wanted |= {self.folder / "files" / _limiter(name): path for name, path in limiter.libraries.items()}
        for card in cards:
            for number, name in enumerate(node_names(card)):
                wanted[self._node_link(card, number)] = self.root / "dev" / name
        try:
            preload, absent = self.own_files
            for folder in ("files", "nodes"):
                (self.folder / folder).mkdir(parents=True, exist_ok=True)
            absent.touch()
            write_if_changed(preload, PRELOADED + "\n")
            there = [path for path in (self.folder / "files").iterdir() if not path.name.startswith(".")]
            gone = {path: absent for path in there if path not in wanted}
            for link, target in (gone | wanted).items():
                _link(link, target)
        except OSError as error:
            raise PluginError(f"cannot make the links in {self.folder}: {error}; check the folder") from error

    def _known(self) -> DriverFiles | None:
        if self._files is None:
            try:
                self._files = driver_files.find(self.root)
            except (EdgegpuError, OSError):
                return None  # a start waits for the driver and reports what it lacks
        return self._files

    def _mounts(self, files: DriverFiles | None, opened: Collection[str] | None) -> Iterator[Mount]:
        """Yield the mounts of a container that the limiter holds, or of any other: `opened` is None for that."""
        names = [(name, _plain(name, "")) for name in _MINIMUM_LIBRARIES]
        shown: tuple[Capability, ...] = ()
        if files is not None:
            shown = tuple(one for one in files.opened if opened is None or one in opened)
            names = [(name, _plain(name, files.version)) for name, _ in _libraries(files, shown)]
        limited = () if opened is None else LIBRARIES
        for name, link in names:
            over = next((_limiter(one) for one in limited if name.startswith(one[:-2])), link)
            for folder in library_folders(platform.machine()):
                yield Mount(f"{folder}/{name}", str(self.folder / "files" / over))
        for name in limited:
            yield Mount(f"{DRIVER_FOLDER}/{name}", str(self.folder / "files" / name))
        if files is None:
            return
        unheld = files.unheld if opened is None else ()
        for path in (*unheld, *(path for one in shown for path in files.opened[one].read_only)):
            yield Mount(files.inside(path), str(self._file_link(path)))
        for tool in files.tools:
            yield Mount(f"/usr/bin/{tool.name}", str(self.folder / "files" / tool.name))
        for path in files.shared:
            yield Mount(files.inside(path), str(path), read_only=False)

    def _file_link(self, path: Path) -> Path:
        return self.folder / "files" / path.name

    def _node_link(self, card: Card, number: int) -> Path:
        return self.folder / "nodes" / f"{card.uuid.replace('/', '_')}.{number}"


def _libraries(files: DriverFiles, opened: Iterable[Capability]) -> Iterator[tuple[str, Path]]:
    """Yield names and paths of the driver's libraries, with those of some capabilities."""
    for library in (*files.libraries, *(library for one in opened for library in files.opened[one].libraries)):
        for name in library.names:
            yield name, library.path


def _limiter(name: str) -> str:
    """Return the name of the link to the limiter's library of a SONAME."""
    return f"limiter-{name}"


def _plain(name: str, version: str) -> str:
    """Return a library's name without the driver's version, which changes."""
    return re.sub(rf"\.{re.escape(version)}$", ".VERSION", name) if version else name


def _link(link: Path, target: Path) -> None:
    """Point a link to a target atomically, unless it points there already."""
    if link.is_symlink() and link.readlink() == target:
        return
    temp = link.with_name(f".{link.name}.new")
    temp.unlink(missing_ok=True)
    temp.symlink_to(target)
    remove_placeholder(link)
    temp.replace(link)
