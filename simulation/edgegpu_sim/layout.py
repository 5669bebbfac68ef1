"""Lays out the files of a simulated driver root: libraries, tools, device files, the shared folder."""

import filecmp
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgegpu_base.files import write_if_changed

from edgegpu_sim.cards import SimCard, mig_minors_text

LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
SHARED = Path("var/lib/nvidia-sim")
SIMCTL = Path("usr/libexec/edgegpu-sim/simctl")

_NULL_DEVICE = (1, 3)
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_SONAMES = ("libnvidia-ml.so", "libcuda.so")


def lay_programs(root: Path, build: Path, version: str) -> None:
    """Copies libraries and tools; those of another driver version go when the new ones are in place."""
    folder = root / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SONAMES:
        _copy((build / f"{name}.1").resolve(strict=True), folder / f"{name}.{version}")
        _link(folder / f"{name}.1", f"{name}.{version}")
        for old in folder.glob(f"{name}.*.*"):
            if old.name != f"{name}.{version}":
                old.unlink()
    _copy(build / "nvidia-smi", root / "usr/bin/nvidia-smi")
    _copy(build / "simctl", root / SIMCTL)


def lay_devices(root: Path, cards: Sequence[SimCard]) -> None:
    """Makes the device files that these cards need and removes those of other cards."""
    wanted = {f"nvidia{card.minor}" for card in cards} | set(_CONTROL_FILES)
    _lay_nodes(root / "dev", wanted, stale=r"nvidia\d+")
    caps = {f"nvidia-cap{cap}" for card in cards for mig in card.mig for cap in mig.caps}
    _lay_nodes(root / "dev/nvidia-caps", caps | {"nvidia-cap1", "nvidia-cap2"}, stale=r"nvidia-cap\d+")
    if root != Path("/"):
        minors = root / "proc/driver/nvidia-caps/mig-minors"
        write_if_changed(minors, mig_minors_text(cards))


def lay_shared(root: Path) -> Path:
    """The folder that the container spec binds; any user's processes write the state file in it."""
    folder = root / SHARED
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    return folder


def _copy(source: Path, target: Path) -> None:
    """A new inode, never a write into a file that processes have mapped."""
    if target.is_file() and filecmp.cmp(source, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temp = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temp)
    temp.chmod(0o755)
    temp.replace(target)


def _link(link: Path, target: str) -> None:
    """Points a link elsewhere without a moment in which it is missing."""
    if link.is_symlink() and link.readlink() == Path(target):
        return
    temp = link.with_name(f".{link.name}.{os.getpid()}")
    temp.symlink_to(target)
    temp.replace(link)


def _lay_nodes(folder: Path, wanted: Iterable[str], *, stale: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = set(wanted)
    for path in folder.iterdir():
        if re.fullmatch(stale, path.name) and path.name not in names:
            path.unlink()
    for name in sorted(names):
        if not (folder / name).exists():
            _make_node(folder / name)


def _make_node(path: Path) -> None:
    """A character device that opens like /dev/null; a plain file where that is not allowed."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*_NULL_DEVICE))
        with path.open("rb"):
            pass
    except OSError:  # not root, or a filesystem mounted nodev
        path.unlink(missing_ok=True)
        path.touch()
    path.chmod(0o666)
