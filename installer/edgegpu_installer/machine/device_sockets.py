"""The folder in which device plugins listen: who answers on its sockets, and what kubelet has registered there."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgegpu_base.listeners import UNSEEN, listener
from edgegpu_installer.layout import DEVICE_PLUGINS, Layout

_CHECKPOINT = "kubelet_internal_checkpoint"
_NOT_THEIRS = frozenset({"kubelet.sock", _CHECKPOINT, "DEPRECATION", "edgegpu"})
"""kubelet's own names, and our folder."""
_ANSWER_S = 1.0
_DRIVER = ("libnvidia-ml.so", "libcuda.so")


@dataclass(frozen=True, slots=True)
class DeviceSocket:
    """A name in the folder of device plugins, without kubelet's own and ours."""

    name: str
    is_served: bool = False
    """Whether somebody listens on it; a plugin that was removed leaves its socket behind."""
    program: str = ""
    """The program that listens; empty when it cannot be read."""
    has_driver: bool = False
    """Whether that program has loaded NVIDIA's driver: then its devices are NVIDIA's cards."""


def device_sockets(layout: Layout) -> tuple[DeviceSocket, ...]:
    """Return the sockets of other device plugins, by name."""
    try:
        folder = os.open(layout.at(DEVICE_PLUGINS), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return ()
    try:
        names = sorted({entry.name for entry in os.scandir(folder)} - _NOT_THEIRS)
        return tuple(_asked(layout, folder, name) for name in names)
    finally:
        os.close(folder)


def _asked(layout: Layout, folder: int, name: str) -> DeviceSocket:
    # the path itself may be too long for a socket
    process = listener(f"/proc/self/fd/{folder}/{name}", timeout_s=_ANSWER_S)
    if process is None:
        return DeviceSocket(name)
    if process == UNSEEN:
        return DeviceSocket(name, is_served=True)
    return DeviceSocket(name, is_served=True, program=_program(layout, process), has_driver=_driver(layout, process))


def _program(layout: Layout, process: int) -> str:
    try:
        words = layout.at(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return PurePosixPath(words[0].decode(errors="replace")).name


def _driver(layout: Layout, process: int) -> bool:
    try:
        maps = layout.at(f"/proc/{process}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(library in maps for library in _DRIVER)


def registered_devices(layout: Layout) -> Mapping[str, tuple[str, ...]]:
    """Return the device ids that kubelet has of each resource, by its checkpoint; empty when it cannot be read."""
    return dict(_registered(layout.at(DEVICE_PLUGINS) / _CHECKPOINT))


def _registered(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        devices = json.loads(path.read_bytes())["Data"]["RegisteredDevices"] or {}
        yield from ((str(name), tuple(map(str, ids or ()))) for name, ids in devices.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
