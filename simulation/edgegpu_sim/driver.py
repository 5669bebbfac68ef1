"""A simulated NVIDIA driver under a folder: lays it out, and injects what can go wrong; also a CLI."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from edgegpu_base.files import write_if_changed

from edgegpu_plugin.errors import PluginError
from edgegpu_sim import layout
from edgegpu_sim.cards import SimCard, SimMig, SimVersions, cards_text, make_card

__all__ = ["SimCard", "SimDriver", "SimDriverError", "SimMig", "SimVersions", "make_card"]

_BUILD = Path(__file__).resolve().parents[2] / "build/simdriver"
_TIMEOUT_S = 10.0


class SimDriverError(Exception):
    """A command on the simulated driver was refused; the text says why."""


class SimDriver:
    """The driver under one root; each method is one call of its simctl, safe from several processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.libraries = root / layout.LIBRARIES
        self.nvidia_smi = root / "usr/bin/nvidia-smi"
        self._simctl = root / layout.SIMCTL

    @classmethod
    def create(
        cls, root: Path, cards: Sequence[SimCard], *, build: Path = _BUILD, versions: SimVersions | None = None
    ) -> Self:
        """Lays out or changes a driver root; each file changes as a whole, and what processes hold is kept.

        Raises:
            SimDriverError: a real driver is under this root, nothing was built, or a card makes no sense.
        """
        if (root / "proc/driver/nvidia/version").exists():
            raise SimDriverError(f"cannot simulate under {root}: a real NVIDIA driver is loaded there")
        if not (build / "simctl").is_file():
            raise SimDriverError(f"cannot simulate: nothing is built in {build}; run make -C simulation/simdriver")
        versions = versions or SimVersions()
        layout.lay_programs(root, build, versions.driver)
        shared = layout.lay_shared(root)
        driver = cls(root)
        write_if_changed(shared / "cards", cards_text(cards, versions))
        driver._run("check")
        driver._run("init")
        layout.lay_devices(root, cards)
        return driver

    def xid(self, uuid: str, code: int) -> None:
        """Sends an XID event of the card to all that wait for one."""
        self._run("xid", uuid, str(code))

    def vanish(self, uuid: str) -> None:
        """Lets the card fall off the bus: its calls answer GPU_IS_LOST."""
        self._run("vanish", uuid)

    def restore(self, uuid: str) -> None:
        """Brings a vanished card back."""
        self._run("restore", uuid)

    def hang(self, call: str) -> None:
        """Lets a call (`*`: every NVML call) hang until `clear`; a name without _vN means every version."""
        self._run("hang", call)

    def fail(self, call: str, code: int) -> None:
        """Lets a call answer with this status until `clear`."""
        self._run("fail", call, str(code))

    def unload(self) -> None:
        """Behaves as if the kernel module were not loaded, for those that start from now on."""
        self._run("unload")

    def load(self) -> None:
        """Ends `unload`."""
        self._run("load")

    def clear(self) -> None:
        """Ends every hang, fail, vanish and unload."""
        self._run("clear")

    def temperature(self, uuid: str, celsius: int) -> None:
        """Sets what the card's thermometer shows."""
        self._run("temperature", uuid, str(celsius))

    def utilisation(self, uuid: str, percent: int) -> None:
        """Sets what the card shows as its GPU utilisation."""
        self._run("utilisation", uuid, str(percent))

    def used_mib(self, uuid: str) -> int:
        """MiB that living processes hold on a card, its instances included, or on one instance."""
        return int(self._run("used", uuid))

    def _run(self, *args: str) -> str:
        done = subprocess.run(
            [self._simctl, self.root.absolute(), *args], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise SimDriverError(f"cannot {args[0]}: {done.stderr.strip()}")
        return done.stdout


def _card(index: int, text: str) -> SimCard:
    """NAME:MIB or NAME:MIB:PROFILE,PROFILE."""
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
    """Runs one command; 0, or 1 with the reason on stderr."""
    args = _parser().parse_args(argv)
    try:
        sys.stdout.write(_create(args) if args.command == "create" else _command(args))
    except (SimDriverError, PluginError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
