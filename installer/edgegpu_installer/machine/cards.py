"""The NVIDIA cards of a box, read without NVML (kernel module, else `nvidia-smi -L`), and their device links."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.programs import SYSTEM_PATH, run

_GPUS = "proc/driver/nvidia/gpus"
_LISTED = re.compile(r"GPU \d+: (.+) \(UUID: (GPU-[0-9a-f-]+)\)")
_FIELD = re.compile(r"^([^:\n]+):[ \t]*(.*)$", re.MULTILINE)
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
_LIBRARY = "libnvidia-ml.so.1"
_NVIDIA_VENDOR, _DISPLAY = "0x10de", "0x03"
_NODES = ("nvidia*", "nvidia-caps/*")


@dataclass(frozen=True, slots=True)
class MachineCard:
    """One NVIDIA card, by its UUID and its model name."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of a box; `why` says why none could be listed."""

    cards: tuple[MachineCard, ...]
    driver: bool
    """Whether a driver is loaded."""
    on_bus: int
    """How many NVIDIA display controllers the PCI bus has, driver or not."""
    why: str = ""
    installed: bool = True
    """Whether the driver's library is there, loaded or not."""


def read_cards(layout: Layout, *, driver_root: str = "/", timeout_s: float = 10.0, path: str = SYSTEM_PATH) -> Cards:
    """Return the cards of the driver below a root."""
    root = layout.at(driver_root)
    on_bus = _on_bus(layout)
    folders = sorted((root / _GPUS).glob("*/information"))
    found = [card for card in (_described(_read(folder)) for folder in folders) if card is not None]
    if found:
        return Cards(tuple(found), driver=True, on_bus=on_bus)
    installed = any((root / folder / _LIBRARY).exists() for folder in _LIBRARIES)
    if not (root / "dev/nvidiactl").exists():
        why = f"there is no {driver_root.rstrip('/')}/dev/nvidiactl"
        return Cards((), driver=False, on_bus=on_bus, why=why, installed=installed)
    program = next((str(p) for p in (root / "usr/bin/nvidia-smi", root / "bin/nvidia-smi") if p.exists()), "nvidia-smi")
    libraries = {} if driver_root == "/" else {"LD_LIBRARY_PATH": ":".join(str(root / folder) for folder in _LIBRARIES)}
    asked = run((program, "-L"), timeout_s=timeout_s, path=path, environment=libraries)
    listed = tuple(MachineCard(uuid, name) for name, uuid in _LISTED.findall(asked.out))
    return Cards(listed, driver=asked.well, on_bus=on_bus, why=asked.why, installed=installed)


def _described(text: str) -> MachineCard | None:
    fields = {name.strip(): value.strip() for name, value in _FIELD.findall(text)}
    uuid = fields.get("GPU UUID", "")
    return MachineCard(uuid, fields.get("Model", "")) if uuid.startswith("GPU-") and "?" not in uuid else None


def _on_bus(layout: Layout) -> int:
    devices = layout.at("/sys/bus/pci/devices").glob("*")
    return sum(
        _read(device / "vendor").strip() == _NVIDIA_VENDOR and _read(device / "class").startswith(_DISPLAY)
        for device in devices
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def make_device_links(root: Path) -> tuple[str, ...]:
    """Make the missing links /dev/char/MAJOR:MINOR for NVIDIA's devices, and return their names.

    With systemd cgroups, a daemon-reload computes each container's device rules again from these links. Without them a
    container that got its card from another tool loses it.

    Raises:
        InstallError: /dev cannot be written.
    """
    made = []
    for node in _nodes(root / "dev"):
        number = node.stat().st_rdev
        link = root / "dev/char" / f"{os.major(number)}:{os.minor(number)}"
        try:
            link.parent.mkdir(exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to("/" / node.relative_to(root))
                made.append(link.name)
        except OSError as error:
            raise InstallError(f"cannot link {link} to {node}: {error.strerror}", "make /dev writable") from error
    return tuple(made)


def _nodes(folder: Path) -> list[Path]:
    found = (path for pattern in _NODES for path in sorted(folder.glob(pattern)))
    return [path for path in found if path.exists() and stat.S_ISCHR(path.stat().st_mode)]
