"""The NVIDIA cards of a box, read without NVML (kernel module, else `nvidia-smi -L`), and their device links."""

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from edgegpu_base.driver_libraries import missing_libraries
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.programs import SYSTEM_PATH, ProgramResult, run

_GPUS = "proc/driver/nvidia/gpus"
_LISTED = re.compile(r"GPU \d+: (.+) \(UUID: (GPU-[0-9a-f-]+)\)")
_FIELD = re.compile(r"^([^:\n]+):[ \t]*(.*)$", re.MULTILINE)
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
_LIBRARY = "libnvidia-ml.so.1"
_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")
_NVIDIA_VENDOR, _DISPLAY = "0x10de", "0x03"
_NODES = ("nvidia*", "nvidia-caps/*")
_MODULE = re.compile(r"/nvidia(-[\w-]+)?-uvm\.ko")
"""A module of NVIDIA's in modules.dep; the kernel's own nvidiafb and nvidia-wmi-ec-backlight have other names."""
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""Four bytes of attributes, then 1 where it is on (UEFI's variable of that name)."""
_SIGNED = b"~Module signature appended~\n"
"""How a signed module's file ends (MODULE_SIG_STRING, include/linux/module_signature.h)."""


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """What the driver keeps of a card for itself; None where it does not say."""

    index: str
    total_mib: int
    kept_mib: int | None


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
    version: str = ""
    """The driver's version by its libraries; empty when their names have none."""
    missing: tuple[str, ...] = ()
    """The driver's libraries that its libcuda asks for, and that are not there."""
    trouble: "ModuleTrouble | None" = None
    """Why the module of an installed driver is not loaded, or that another driver has the cards; None with a driver."""


@dataclass(frozen=True, slots=True)
class ModuleTrouble:
    """Why the kernel has not loaded NVIDIA's module: as a clause, and the command that mends it."""

    why: str
    remedy: str


def read_cards(layout: Layout, *, driver_root: str = "/", timeout_s: float = 10.0, path: str = SYSTEM_PATH) -> Cards:
    """Return the cards of the driver below a root."""
    root = layout.at(driver_root)
    on_bus = len(_display_cards(layout))
    folders = sorted((root / _GPUS).glob("*/information"))
    found = [card for card in (_described(_read(folder)) for folder in folders) if card is not None]
    version, missing = driver_version(root), missing_below(root)
    if found:
        return Cards(tuple(found), driver=True, on_bus=on_bus, version=version, missing=missing)
    installed = any((root / folder / _LIBRARY).exists() for folder in _LIBRARIES)
    if not (root / "dev/nvidiactl").exists():
        why = f"there is no {driver_root.rstrip('/')}/dev/nvidiactl"
        trouble = module_trouble(layout) if on_bus else None
        none = Cards((), driver=False, on_bus=on_bus, why=why, installed=installed, version=version, missing=missing)
        return replace(none, trouble=trouble)
    asked = _smi("-L", layout=layout, driver_root=driver_root, timeout_s=timeout_s, path=path)
    listed = tuple(MachineCard(uuid, name) for name, uuid in _LISTED.findall(asked.out))
    seen = Cards(listed, driver=asked.well, on_bus=on_bus, why=asked.why, installed=installed)
    return replace(seen, version=version, missing=missing)


def driver_version(root: Path) -> str:
    """Return the driver's version below a root, by the file that NVML's link leads to; empty when it is unseen."""
    for folder in _LIBRARIES:
        found = _VERSION.search((root / folder / _LIBRARY).resolve().name)
        if found is not None:
            return found[1]
    return ""


def missing_below(root: Path) -> tuple[str, ...]:
    """Return the driver's libraries below a root that its libcuda asks for, and that are not there."""
    libcuda = next((path for folder in _LIBRARIES if (path := root / folder / "libcuda.so.1").exists()), None)
    return () if libcuda is None else missing_libraries(libcuda)


def read_kept(
    layout: Layout, *, driver_root: str = "/", timeout_s: float = 10.0, path: str = SYSTEM_PATH
) -> tuple[KeptMemory, ...]:
    """Return what the driver keeps of each card; none where it does not answer."""
    for fields in ("memory.total,memory.reserved", "memory.total"):  # drivers before 510 do not know the second
        query = (f"--query-gpu=index,{fields}", "--format=csv,noheader,nounits")
        asked = _smi(*query, layout=layout, driver_root=driver_root, timeout_s=timeout_s, path=path)
        found = [[word.strip() for word in line.split(",")] for line in asked.out.splitlines()] if asked.well else []
        if found:
            return tuple(
                KeptMemory(row[0], int(row[1]), int(row[2]) if row[2:] and row[2].isdecimal() else None)
                for row in found
                if row[1:] and row[1].isdecimal()
            )
    return ()


def _smi(*words: str, layout: Layout, driver_root: str, timeout_s: float, path: str) -> ProgramResult:
    """Run the nvidia-smi of the driver below a root."""
    root = layout.at(driver_root)
    program = next((str(p) for p in (root / "usr/bin/nvidia-smi", root / "bin/nvidia-smi") if p.exists()), "nvidia-smi")
    libraries = {} if driver_root == "/" else {"LD_LIBRARY_PATH": ":".join(str(root / folder) for folder in _LIBRARIES)}
    return run((program, *words), timeout_s=timeout_s, path=path, environment=libraries)


def module_trouble(layout: Layout) -> ModuleTrouble | None:
    """Return why NVIDIA's module is not loaded, by the kernel's own files and those of DKMS; None when that is unseen.

    It reads what `uname`, `lspci -k`, `modinfo`, `mokutil` and `dkms status` read, and needs none of them.
    """
    if taken := sorted({name for name in card_drivers(layout).values() if name and name != "nvidia"}):
        return _taken(taken[0])
    kernel = _read(layout.at("/proc/sys/kernel/osrelease")).strip()
    if not kernel:
        return None
    module = _module_file(layout, kernel)
    if module is None:
        return _not_built(layout, kernel) if layout.at(f"/lib/modules/{kernel}/modules.dep").is_file() else None
    secured = _read_bytes(layout.at(_SECURE_BOOT))[-1:] == b"\1"
    if not secured:
        return None
    signed = _is_signed(module)
    if signed is False:
        why, sign = "has no signature, and Secure Boot is on", "sign it (Debian, Ubuntu: `sudo dkms autoinstall` does)"
        return ModuleTrouble(
            f"its module for the kernel {kernel} {why}", f"{sign}, or turn Secure Boot off in the BIOS"
        )
    return ModuleTrouble(
        "Secure Boot is on, and may not know the key of its module",
        "sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot  # accept the key at the start; Ubuntu has "
        "it in /var/lib/shim-signed/mok/MOK.der",
    )


def card_drivers(layout: Layout) -> dict[str, str]:
    """Return the kernel driver that has each NVIDIA card on the bus, by its address; empty where none has it."""
    found = {}
    for device in _display_cards(layout):
        link = device / "driver"
        found[device.name] = link.readlink().name if link.is_symlink() else ""
    if not any(found.values()) and re.search(r"^nouveau ", _read(layout.at("/proc/modules")), re.MULTILINE):
        return dict.fromkeys(found, "nouveau")
    return found


def _taken(driver: str) -> ModuleTrouble:
    if driver == "nouveau":
        return ModuleTrouble(
            "nouveau holds the cards",
            "echo blacklist nouveau | sudo tee /etc/modprobe.d/nouveau.conf && sudo reboot",
        )
    return ModuleTrouble(
        f"the kernel's driver {driver} holds the cards",
        f"look for {driver} in /etc/modprobe.d and /proc/cmdline, take it out there, then sudo reboot",
    )


def _module_file(layout: Layout, kernel: str) -> Path | None:
    """Return the file of NVIDIA's module for a kernel; None where it has none."""
    folder = layout.at(f"/lib/modules/{kernel}")
    for line in _read(folder / "modules.dep").splitlines():
        name = line.partition(":")[0]
        if _MODULE.search(f"/{name}"):
            return folder / name
    return None


def _not_built(layout: Layout, kernel: str) -> ModuleTrouble:
    """Return why there is no module for the running kernel: no headers, a driver too old for it, another kernel's."""
    why = f"there is no module of it for the running kernel {kernel}"
    headers = layout.at(f"/lib/modules/{kernel}/build").exists()
    build = f"sudo apt-get install linux-headers-{kernel} && sudo dkms autoinstall && sudo modprobe nvidia"
    others = sorted(
        path.parent.name
        for path in layout.at("/lib/modules").glob("*/modules.dep")
        if path.parent.name != kernel and _module_file(layout, path.parent.name) is not None
    )
    older = f"boot {others[-1]}, which has one, or " if others else ""
    for log in sorted(layout.at("/var/lib/dkms").glob("nvidia*/*/build/make.log")):
        if headers and kernel in _read(log):
            version, name = log.parent.parent.name, f"/{log.relative_to(layout.at('/'))}"
            why = f"DKMS could not build version {version} for the running kernel {kernel}, which may be newer than it"
            return ModuleTrouble(f"{why} ({name})", f"{older}install a newer driver; then sudo modprobe nvidia")
    if headers and others and not any(layout.at("/var/lib/dkms").glob("nvidia*")):
        return ModuleTrouble(why, f"{older}install the driver's module package for {kernel}")
    return ModuleTrouble(why, build)


def _is_signed(module: Path) -> bool | None:
    """Return whether a module's file ends with a signature; None for a file that is compressed or cannot be read."""
    if module.suffix != ".ko":
        return None
    text = _read_bytes(module)
    return text.endswith(_SIGNED) if text else None


def _described(text: str) -> MachineCard | None:
    fields = {name.strip(): value.strip() for name, value in _FIELD.findall(text)}
    uuid = fields.get("GPU UUID", "")
    return MachineCard(uuid, fields.get("Model", "")) if uuid.startswith("GPU-") and "?" not in uuid else None


def _display_cards(layout: Layout) -> list[Path]:
    devices = sorted(layout.at("/sys/bus/pci/devices").glob("*"))
    return [
        device
        for device in devices
        if _read(device / "vendor").strip() == _NVIDIA_VENDOR and _read(device / "class").startswith(_DISPLAY)
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


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
