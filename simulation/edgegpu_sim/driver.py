"""A simulated NVIDIA driver under a folder: lays it out, and injects what can go wrong; also a CLI."""

import argparse
import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_sim.cards import SimCard, SimMig, SimVersions, cards_text, make_card, mig_minors_text

__all__ = ["SimCard", "SimDriver", "SimDriverError", "SimMig", "SimVersions", "make_card"]

_BUILD = Path(__file__).resolve().parents[2] / "build/simdriver"
_TIMEOUT_S = 10.0
_BUSY_S, _BUSY_PAUSE_S = 5.0, 0.01
_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_SHARED = Path("var/lib/nvidia-sim")
_SIMCTL = Path("usr/libexec/edgegpu-sim/simctl")

_NULL_DEVICE = (1, 3)
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_SONAMES = ("libnvidia-ml.so.1", "libcuda.so.1", "libGLX_nvidia.so.0")
_TOOLS = ("nvidia-smi", "nvidia-cuda-mps-control")


class SimDriverError(Exception):
    """The simulated driver refused a command; the text says why."""


class SimDriver:
    """The simulated driver under one root; each method is one call of simctl, safe from several processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.libraries = root / _LIBRARIES
        self.nvidia_smi = root / "usr/bin/nvidia-smi"
        self._simctl = root / _SIMCTL

    @classmethod
    def create(
        cls, root: Path, cards: Sequence[SimCard], *, build: Path = _BUILD, versions: SimVersions | None = None
    ) -> Self:
        """Make or change a driver root; each file changes atomically, and what processes hold is kept.

        Raises:
            SimDriverError: a real driver is under this root, nothing was built, or a card is invalid.
        """
        if (root / "proc/driver/nvidia/version").exists():
            raise SimDriverError(f"cannot simulate under {root}: a real NVIDIA driver is loaded there")
        if not (build / "simctl").is_file():
            raise SimDriverError(f"cannot simulate: nothing is built in {build}; run make -C simulation/simdriver")
        versions = versions or SimVersions()
        _lay_programs(root, build, versions.driver)
        shared = _lay_shared(root)
        driver = cls(root)
        write_if_changed(shared / "cards", cards_text(cards, versions))
        driver._run("check")
        driver._run("init")
        _lay_devices(root, cards)
        return driver

    def xid(self, uuid: str, code: int) -> None:
        """Send an XID event of a card to all processes that wait for one."""
        self._run("xid", uuid, str(code))

    def vanish(self, uuid: str) -> None:
        """Make a card fall off the bus: its calls return GPU_IS_LOST."""
        self._run("vanish", uuid)

    def restore(self, uuid: str) -> None:
        """Bring a vanished card back."""
        self._run("restore", uuid)

    def hang(self, call: str) -> None:
        """Make a call (`*`: every NVML call) hang until `clear`; a name without _vN means every version."""
        self._run("hang", call)

    def fail(self, call: str, code: int) -> None:
        """Make a call return this status until `clear`."""
        self._run("fail", call, str(code))

    def unload(self) -> None:
        """Simulate, for processes that start from now on, that the kernel module is not loaded."""
        self._run("unload")

    def load(self) -> None:
        """End the effect of `unload`."""
        self._run("load")

    def clear(self, *calls: str) -> None:
        """End the hang or fail of these calls, named as there; of none: every hang, fail, vanish and unload."""
        for call in calls:
            self._run("clear", call)
        if not calls:
            self._run("clear")

    def temperature(self, uuid: str, celsius: int) -> None:
        """Set a card's temperature."""
        self._run("temperature", uuid, str(celsius))

    def utilisation(self, uuid: str, percent: int) -> None:
        """Set a card's GPU utilisation."""
        self._run("utilisation", uuid, str(percent))

    def used_mib(self, uuid: str) -> int:
        """Return the MiB that living processes hold on a card, including its MIG instances, or on one instance."""
        return int(self._run("used", uuid))

    def busy_ms(self, uuid: str) -> int:
        """Return the milliseconds of a card or an instance that living processes used."""
        return int(self._run("busy", uuid))

    def _run(self, *args: str) -> str:
        done = _started([str(self._simctl), str(self.root.absolute()), *args])
        if done.returncode != 0:
            raise SimDriverError(f"cannot {args[0]}: {done.stderr.strip()}")
        return done.stdout


def _started(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run simctl; a process that another thread forked while it was copied has it open for a moment (ETXTBSY)."""
    end_s = time.monotonic() + _BUSY_S
    while True:
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except OSError as error:
            if error.errno != errno.ETXTBSY or time.monotonic() > end_s:
                raise
            time.sleep(_BUSY_PAUSE_S)


def _lay_programs(root: Path, build: Path, version: str) -> None:
    """Copy libraries and tools; those of another driver version are removed when the new ones are in place."""
    folder = root / _LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for soname in _SONAMES:
        name = soname[:-2]
        write_if_changed(folder / f"{name}.{version}", (build / soname).read_bytes(), mode=0o755)
        _link(folder / soname, f"{name}.{version}")
        for old in folder.glob(f"{name}.*.*"):
            if old.name != f"{name}.{version}":
                old.unlink()
    for name in _TOOLS:
        write_if_changed(root / "usr/bin" / name, (build / name).read_bytes(), mode=0o755)
    write_if_changed(root / _SIMCTL, (build / "simctl").read_bytes(), mode=0o755)


def _lay_devices(root: Path, cards: Sequence[SimCard]) -> None:
    """Make the device files that these cards need and remove those of other cards."""
    wanted = {f"nvidia{card.minor}" for card in cards} | set(_CONTROL_FILES)
    _lay_nodes(root / "dev", wanted, stale=r"nvidia\d+")
    caps = {f"nvidia-cap{cap}" for card in cards for mig in card.mig for cap in mig.caps}
    _lay_nodes(root / "dev/nvidia-caps", caps | {"nvidia-cap1", "nvidia-cap2"}, stale=r"nvidia-cap\d+")
    if root != Path("/"):
        minors = root / "proc/driver/nvidia-caps/mig-minors"
        write_if_changed(minors, mig_minors_text(cards))


def _lay_shared(root: Path) -> Path:
    """Make the folder that the container spec binds, and return it; any user's processes write the state file there."""
    folder = root / _SHARED
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    return folder


def _link(link: Path, target: str) -> None:
    """Point a link to another target atomically."""
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
    """Make a character device that opens like /dev/null, or a plain file where that is not allowed."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*_NULL_DEVICE))
        with path.open("rb"):
            pass
    except OSError:  # not root, or a filesystem mounted nodev
        path.unlink(missing_ok=True)
        path.touch()
    path.chmod(0o666)


def _card(index: int, text: str) -> SimCard:
    """Return the card of a text NAME:MIB or NAME:MIB:PROFILE,PROFILE."""
    name, _, rest = text.partition(":")
    mib, _, profiles = rest.partition(":")
    if not name or not mib.isdigit():
        raise SimDriverError(f"cannot read the card {text!r}: it looks like 'Tesla T4:15360'")
    return make_card(index, name, int(mib), profiles=[part for part in profiles.split(",") if part])


def _create(args: argparse.Namespace) -> str:
    cards = [_card(index, text) for index, text in enumerate(args.card)]
    versions = SimVersions(args.driver, args.cuda, args.context_mib)
    SimDriver.create(args.root, cards, build=args.build, versions=versions)
    return "".join(f"{card.uuid} {card.name}\n" for card in cards)


def _command(args: argparse.Namespace) -> str:
    driver = SimDriver(args.root)
    match args.command:
        case "xid" | "temperature" | "utilisation":
            getattr(driver, args.command)(args.uuid, args.value)
        case "vanish" | "restore":
            getattr(driver, args.command)(args.uuid)
        case "hang":
            driver.hang(args.call)
        case "fail":
            driver.fail(args.call, args.value)
        case "used":
            return f"{driver.used_mib(args.uuid)}\n"
        case _:
            getattr(driver, args.command)()
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m edgegpu_sim.driver", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="lay out a driver root, or change its cards")
    create.add_argument("root", type=Path)
    create.add_argument("--card", action="append", default=[], metavar="NAME:MIB[:PROFILE,...]")
    create.add_argument("--build", type=Path, default=_BUILD, help="where make put the libraries")
    create.add_argument("--driver", default=SimVersions().driver, help="driver version")
    create.add_argument("--cuda", default=SimVersions().cuda, help="CUDA version")
    create.add_argument("--context-mib", type=int, default=0, help="what a CUDA context costs")
    for name, helps, args in (
        ("xid", "send an XID event", ("uuid", "value")),
        ("vanish", "the card falls off the bus", ("uuid",)),
        ("restore", "and is back", ("uuid",)),
        ("hang", "a call hangs until clear", ("call",)),
        ("fail", "a call answers an error until clear", ("call", "value")),
        ("unload", "the driver is not loaded", ()),
        ("load", "the driver is loaded again", ()),
        ("clear", "end every hang, fail, vanish and unload", ()),
        ("temperature", "set the temperature in °C", ("uuid", "value")),
        ("utilisation", "set the utilisation in percent", ("uuid", "value")),
        ("used", "show the MiB in use", ("uuid",)),
    ):
        sub = commands.add_parser(name, help=helps)
        sub.add_argument("root", type=Path)
        for arg in args:
            sub.add_argument(arg, type=int if arg == "value" else str)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 1 with the reason on stderr."""
    args = _parser().parse_args(argv)
    try:
        sys.stdout.write(_create(args) if args.command == "create" else _command(args))
    except (SimDriverError, EdgegpuError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
