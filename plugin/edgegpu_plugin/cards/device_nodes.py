"""The driver's device nodes on this machine: made after a boot as by nvidia-modprobe, and linked for systemd."""

import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_log = logging.getLogger(__name__)

_CONTROL_MINOR = 255
_MODPROBE_S = 30
_MODE = stat.S_IFCHR | 0o666


def ensure_nodes(
    names: Iterable[str],
    *,
    dev: Path = Path("/dev"),
    proc: Path = Path("/proc"),
    run: Callable[[Sequence[str]], None] | None = None,
    make: Callable[[Path, int], None] | None = None,
) -> tuple[str, ...]:
    """Make the device nodes that are missing, and return those that are still missing afterwards.

    Args:
        names: paths below `dev`, such as `nvidia0`, `nvidiactl`, `nvidia-uvm`, `nvidia-caps/nvidia-cap12`.
        dev: the folder of device nodes.
        proc: the kernel's `/proc`, whose `devices` has the numbers of this boot.
        run: runs nvidia-modprobe.
        make: makes one node with a device number.
    """
    missing = [name for name in names if not (dev / name).exists()]
    if not missing:
        return ()
    _log.warning("device nodes missing after the boot, making them: %s", ", ".join(missing))
    (run or _run)(_modprobe_arguments(missing))
    numbers = _majors(proc / "devices")
    for name in missing:
        number = _number(name, numbers)
        if not (dev / name).exists() and number is not None:
            try:
                (make or _make)(dev / name, number)
            except OSError as error:
                _log.error("cannot make %s: %s; run `nvidia-smi` once as root", dev / name, error)
    return tuple(name for name in missing if not (dev / name).exists())


def link_nodes(nodes: Iterable[Path], *, char: Path = Path("/dev/char")) -> int:
    """Link device nodes as `/dev/char/MAJOR:MINOR` and return how many links were made.

    Without the links a `systemctl daemon-reload` takes the cards from running containers: systemd resolves the device
    rules of cgroups there, and the NVIDIA driver, unlike others, does not make udev create them.
    """
    made = 0
    for node in nodes:
        try:
            found = node.stat()
            if not stat.S_ISCHR(found.st_mode):
                continue
            link = char / f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(os.path.relpath(node, char))
            made += 1
        except FileExistsError:
            continue
        except OSError as error:
            _log.warning("cannot link %s in %s: %s; daemon-reload may take cards from containers", node, char, error)
    return made


def _run(arguments: Sequence[str]) -> None:
    """Run nvidia-modprobe if there is one; it also loads missing kernel modules."""
    program = shutil.which("nvidia-modprobe")
    if program is None:
        return
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=_MODPROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("cannot run nvidia-modprobe: %s", error)
        return
    if done.returncode:
        _log.warning("nvidia-modprobe %s: %s", " ".join(arguments), done.stderr.strip() or f"exit {done.returncode}")


def _make(path: Path, number: int) -> None:
    path.parent.mkdir(exist_ok=True)
    os.mknod(path, _MODE, number)
    path.chmod(_MODE & 0o777)  # mknod applies the umask


def _modprobe_arguments(names: Iterable[str]) -> list[str]:
    arguments = ["-u"]
    for name in names:
        if (minor := _card_minor(name)) is not None:
            arguments += ["-c", str(minor)]
        elif name == "nvidia-modeset":
            arguments.append("-m")
    return arguments


def _card_minor(name: str) -> int | None:
    text = name.removeprefix("nvidia")
    return int(text) if text != name and text.isdigit() else None


def _number(name: str, majors: dict[str, int]) -> int | None:
    """Return a node's device number in this boot; None when the kernel module is not loaded."""
    main = majors.get("nvidia", majors.get("nvidia-frontend"))
    minor = _card_minor(name)
    if minor is not None:
        place: tuple[int | None, int] = (main, minor)
    elif name.startswith("nvidia-caps/nvidia-cap"):
        place = (majors.get("nvidia-caps"), int(name.removeprefix("nvidia-caps/nvidia-cap")))
    else:
        places = {
            "nvidiactl": (main, _CONTROL_MINOR),
            "nvidia-modeset": (main, _CONTROL_MINOR - 1),
            "nvidia-uvm": (majors.get("nvidia-uvm"), 0),
            "nvidia-uvm-tools": (majors.get("nvidia-uvm"), 1),
        }
        place = places.get(name, (None, 0))
    return None if place[0] is None else os.makedev(place[0], place[1])


def _majors(devices: Path) -> dict[str, int]:
    """Return the major numbers of the character devices, which the file lists before the block devices."""
    try:
        text = devices.read_text().partition("Block devices:")[0]
    except OSError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdigit()}  # noqa: PLR2004
