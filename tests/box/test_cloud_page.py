"""docs/cloud/set-up.md, pasted from nothing to a fleet of two boxes: blocks on a machine, the lines on the boxes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from box.bed import BUNDLE, ROOT, SIMULATED, WITH_K3S, Bed
from e2e.boxnode import BoxNode
from e2e.k3s import K3s
from lab.boxkit import Box
from lab.labrun import HERE, run, wait_until

PAGE = (ROOT / "docs/cloud/set-up.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From nothing\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```sh controller\n(.*?)```", SECTION, re.DOTALL)
HERE_IS = {"SOURCE": "/srv/edgegpu", "BUNDLE": "/srv/bundle"}
IMAGE, PACKAGES = "cloud", ("mosquitto", "python3-venv")
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
        names = {"CLOUD": self.machine.exec("hostname", "-I").stdout.split()[0], **HERE_IS}
        first = "".join(f"{name}={names[name]}\n" for name in re.findall("^[A-Z]+", BLOCKS[0], re.MULTILINE))
        words = [f"{name}={value}" for name, value in OFFLINE.items()]
        script = f"set -e\n{first}{block}"
        return self.machine.exec("env", *words, "bash", "-s", input=script, timeout_s=timeout_s).stdout


def block(words: str) -> str:
    """Return the page's block that has these words in it."""
    (found,) = [one for one in BLOCKS if words in one]
    return str(found)


@pytest.fixture(scope="module")
def controller(bed: Bed) -> Iterator[Controller]:
    """Yield a Debian machine with the source and the bundle on it, and what apt and pip would fetch."""
    del bed  # it has made the bundle
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


@pytest.fixture(scope="module")
def second(bed: Bed) -> Iterator[Bed]:
    """Yield another box with k3s and cards, beside the first."""
    made = Bed()
    made.machine = Box("edgebox2")
    made.node = BoxNode(made.machine)
    made.cluster = K3s(made.node)
    bed.fresh(WITH_K3S)
    try:
        made.machine.up_k3s()
        made.lay_cards()
        yield made
    finally:
        made.machine.down()


def test_from_nothing_to_a_fleet_of_two_boxes(bed: Bed, second: Bed, controller: Controller) -> None:
    assert re.match(r"edgegpu-cloud \d", controller.paste(block("pip install"), timeout_s=400).splitlines()[-1])
    controller.paste(block("edgegpu-cloud init"))
    controller.paste(block("enable --now"))
    health = ["curl", "-fsS", "--cacert", "/var/lib/edgegpu-cloud/ca/servers.crt"]
    address = controller.machine.exec("hostname", "-I").stdout.split()[0]
    wait_until(
        lambda: controller.machine.exec(*health, f"https://{address}:8443/healthz", check=False).returncode == 0,
        what="the controller serves",
    )
    wait_until(lambda: "not" not in _trouble(controller), what="it is connected to its broker")
    assert controller.paste("edgegpu-cloud boxes\n").startswith("no boxes yet")
    for machine, name, line in zip((bed, second), ("hall-1", "hall-2"), _lines(controller), strict=True):
        pasted = f"set -o pipefail; {line} --driver-root {SIMULATED} --yes"
        assert f"enrolled as {name}" in machine.machine.exec("bash", "-c", pasted, timeout_s=300).stdout
    wait_until(lambda: _free(controller) == [58, 58], what="both have told of their cards", timeout_s=180)
    shown = controller.paste(block("boxes -l site=hall"), timeout_s=120)
    rows = [line.split()[:2] for line in shown.splitlines()]
    assert [row for row in rows if row[1:] == ["online"]] == [["hall-1", "online"], ["hall-2", "online"]]
    assert len(re.findall(r"^hall-[12] .* SUCCEEDED$", shown, re.MULTILINE)) == 2
    assert len(re.findall(r"^hall-[12] +fits ", shown, re.MULTILINE)) == 2


def _lines(controller: Controller) -> list[str]:
    printed = controller.paste(block("edgegpu-cloud enrol"))
    return [line for line in printed.splitlines() if line.startswith("curl ") and " sudo " not in line]


def _trouble(controller: Controller) -> str:
    return controller.machine.exec("edgegpu-cloud", "boxes").stderr


def _free(controller: Controller) -> list[int]:
    boxes = json.loads(controller.paste("edgegpu-cloud boxes -l site=hall --json\n"))
    return [one["capacity"]["free_units"] for one in boxes if one["capacity"]]


def test_the_blocks_are_those_of_the_page() -> None:
    assert [line.partition("=")[0] for line in BLOCKS[0].split()] == ["CLOUD", "SOURCE", "BUNDLE"]
    assert all(subprocess.run(["bash", "-n"], input=one, text=True, check=False).returncode == 0 for one in BLOCKS)
