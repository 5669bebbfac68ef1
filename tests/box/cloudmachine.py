"""The machine of a controller: a booted Debian on which the blocks of docs/cloud/set-up.md are pasted."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from box.bed import BUNDLE, ROOT
from lab.boxkit import Box
from lab.labrun import HERE, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs/cloud/set-up.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From nothing\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```sh controller\n(.*?)```", SECTION, re.DOTALL)
(PARTS,) = re.findall(r"```sh\n(systemctl disable --now edgegpu-cloud\n.*?)```", PAGE, re.DOTALL)
HERE_IS = {"SOURCE": "/srv/edgegpu", "BUNDLE": "/srv/bundle"}
IMAGE, PACKAGES = "cloud", ("mosquitto", "python3-venv", "gcc", "libc6-dev", "mosquitto-dev", "libmosquitto-dev")
LAB = Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108  (as the lab's tools have it)
STATE = Path(os.environ.get("BOX_STATE") or LAB / "state")
WHEELS = ROOT / "build/wheels"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/wheels"}
"""A box has no network: what pip would fetch lies there."""


@dataclass
class Controller:
    """The machine that the page's blocks are pasted on."""

    machine: Box

    def paste(self, block: str, *, timeout_s: float = 120) -> str:
        """Paste a block, with the names of the first one as they are here; returns what it prints."""
        names = {"CLOUD": self.address, **HERE_IS}
        first = "".join(f"{name}={names[name]}\n" for name in re.findall("^[A-Z]+", BLOCKS[0], re.MULTILINE))
        words = [f"{name}={value}" for name, value in OFFLINE.items()]
        script = f"set -e\n{first}{block}"
        return self.machine.exec("env", *words, "bash", "-s", input=script, timeout_s=timeout_s).stdout

    @property
    def address(self) -> str:
        """The address of the machine on the boxes' LAN."""
        return self.machine.exec("hostname", "-I").stdout.split()[0]

    @property
    def console(self) -> str:
        """The URL of its console."""
        return f"https://{self.address}:8444"

    def serves(self) -> None:
        """Wait until HTTPS and the console answer, and the controller is connected to its broker."""
        health = ["curl", "-fsS", "--cacert", "/var/lib/edgegpu-cloud/ca/servers.crt"]
        for port in (8443, 8444):
            asked = [*health, f"https://{self.address}:{port}/healthz"]
            wait_until(
                lambda asked=asked: self.machine.exec(*asked, check=False).returncode == 0,  # type: ignore[misc]  # mypy cannot infer a default's type
                what=f"port {port} answers",
            )
        connected = "it is connected to its broker"
        wait_until(lambda: "not" not in self.machine.exec("edgegpu-cloud", "boxes").stderr, what=connected)


def block(words: str) -> str:
    """Return the page's block that has these words in it."""
    (found,) = [one for one in BLOCKS if words in one]
    return str(found)


def pages_machine(controller: Controller) -> str:
    """Paste the page's blocks up to a controller that serves; returns the link of the first admin."""
    assert re.match(r"edgegpu-cloud \d", controller.paste(block("pip install"), timeout_s=400).splitlines()[-1])
    link: str = re.findall(r"first admin +(\S+)", controller.paste(block("edgegpu-cloud init")))[0]
    controller.paste(block("enable --now"))
    controller.serves()
    return link


@contextmanager
def booted() -> Iterator[Controller]:
    """Boot a Debian machine with the source and the bundle on it, and what apt and pip would fetch."""
    own = STATE / "of-cloud"
    own.mkdir(parents=True, exist_ok=True)
    run(["env", f"BOX_STATE={own}", HERE / "box", "build", *PACKAGES], timeout_s=600)
    run(["cp", "--sparse=always", own / "base.img", STATE / f"{IMAGE}.img"])
    wheels = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--python-version", "3.11"]
    run([*wheels, "-d", WHEELS, "-r", ROOT / "requirements/cloud.txt"], timeout_s=600)
    run([*wheels, "-d", WHEELS, "hatchling"], timeout_s=300)
    machine = Box("cloudbox")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "edgegpu"
        leave = shutil.ignore_patterns(".git", ".venv", "build", ".*_cache", ".hypothesis", "__pycache__")
        shutil.copytree(ROOT, source, ignore=leave)
        shutil.copytree(BUNDLE, Path(folder) / "bundle")
        try:
            machine.up(image=IMAGE)
            machine.push(source, Path(folder) / "bundle", WHEELS, to="/srv")
            yield Controller(machine)
        finally:
            machine.down()
