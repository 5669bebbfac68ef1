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
from kits.browser import browser, need_chromium
from kits.enrolpage import become_admin, copy_line
from lab.boxkit import Box
from lab.labrun import HERE, run, wait_until
from playwright.sync_api import Page, expect

PAGE = (ROOT / "docs/cloud/set-up.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From nothing\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```sh controller\n(.*?)```", SECTION, re.DOTALL)
(PARTS,) = re.findall(r"```sh\n(systemctl disable --now edgegpu-cloud\n.*?)```", PAGE, re.DOTALL)
REPORT_MS = 180_000
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
        wait_until(lambda: "not" not in _trouble(self), what="it is connected to its broker")


def chromium_on_the_lan(folder: Path) -> str:
    """Return a program that runs this machine's Chromium on the boxes' LAN; Playwright's pipe to it passes through."""
    program = folder / "chromium"
    program.write_text(f'#!/bin/sh\nexec {HERE / "box"} lab {need_chromium()} "$@"\n')
    program.chmod(0o755)
    return str(program)


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


def test_from_nothing_to_a_fleet_of_two_boxes(bed: Bed, second: Bed, controller: Controller, tmp_path: Path) -> None:
    assert re.match(r"edgegpu-cloud \d", controller.paste(block("pip install"), timeout_s=400).splitlines()[-1])
    link = re.findall(r"first admin +(\S+)", controller.paste(block("edgegpu-cloud init")))[0]
    controller.paste(block("enable --now"))
    controller.serves()
    assert controller.paste("edgegpu-cloud boxes\n").startswith("no boxes yet")
    program = chromium_on_the_lan(tmp_path)
    with browser(controller.console, "", program=program, expected="net::ERR_") as context:  # its console restarts
        page = context.new_page()
        become_admin(page, link)
        _enrol_by_the_page(page, bed)
        _enrol_by_the_command(controller, second)
        wait_until(lambda: _free(controller) == [58, 58], what="both have told of their cards", timeout_s=180)
        shown = controller.paste(block("boxes -l site=hall"), timeout_s=120)
        rows = [line.split()[:2] for line in shown.splitlines()]
        assert [row for row in rows if row[1:] == ["online"]] == [["hall-1", "online"], ["hall-2", "online"]]
        assert len(re.findall(r"^hall-[12] .* SUCCEEDED$", shown, re.MULTILINE)) == 2
        assert len(re.findall(r"^hall-[12] +fits ", shown, re.MULTILINE)) == 2
        _by_units_of_single_processes(controller)
        _leave_by_the_page(page, bed)


def _enrol_by_the_page(page: Page, bed: Bed) -> None:
    """Paste the line that the page has put on the clipboard: the page shows the box's first report by itself."""
    line = copy_line(page, "hall-1", "site=hall")
    page.evaluate("window.opened = 'once'")
    paste(bed, line, "hall-1")
    expect(page.get_by_role("link", name="hall-1")).to_be_visible()
    expect(page.get_by_text("58 of 58 units")).to_be_visible(timeout=REPORT_MS)
    assert page.evaluate("window.opened") == "once"


def _enrol_by_the_command(controller: Controller, bed: Bed) -> None:
    printed = controller.paste(block("edgegpu-cloud enrol"))
    lines = [line for line in printed.splitlines() if line.startswith("curl ") and " sudo " not in line]
    assert len(lines) == 2
    paste(bed, lines[1], "hall-2")


def paste(bed: Bed, line: str, name: str) -> None:
    """Paste a line on a box, with options of this lab."""
    pasted = f"set -o pipefail; {line} --driver-root {SIMULATED} --yes"
    assert f"enrolled as {name}" in bed.machine.exec("bash", "-c", pasted, timeout_s=300).stdout


def _by_units_of_single_processes(controller: Controller) -> None:
    """Paste the block that gives each process a unit: both boxes come back, and the console sees no other key."""
    controller.paste(PARTS)
    controller.serves()
    wait_until(lambda: _free(controller) == [58, 58], what="both boxes are there")
    pid = controller.paste("systemctl show -p MainPID --value edgegpu-cloud-console@8444\n").strip()
    seen = controller.paste(
        f"cd /proc/{pid}/root/var/lib/edgegpu-cloud\nfind . -name '*.key' -readable -size +0\n"
    ).split()
    assert seen == ["./tls/console.key"]


def _leave_by_the_page(page: Page, bed: Bed) -> None:
    """Paste the line that the box's page shows for its end, and see that end there."""
    page.get_by_role("link", name="hall-1").click()
    page.get_by_role("link", name="Remove a box").click()
    line = page.get_by_text("edgegpu uninstall").text_content() or ""
    page.go_back()
    bed.machine.exec("bash", "-c", f'sudo() {{ "$@"; }}; {line}', timeout_s=240)  # the box has no sudo
    assert bed.machine.exec("test", "-e", "/opt/edgegpu", check=False).returncode != 0
    expect(page.get_by_role("heading", name="hall-1")).to_contain_text("Uninstalled", timeout=REPORT_MS)


def _trouble(controller: Controller) -> str:
    return controller.machine.exec("edgegpu-cloud", "boxes").stderr


def _free(controller: Controller) -> list[int]:
    boxes = json.loads(controller.paste("edgegpu-cloud boxes -l site=hall --json\n"))
    return [one["capacity"]["free_units"] for one in boxes if one["capacity"]]


def test_the_blocks_are_those_of_the_page() -> None:
    assert [line.partition("=")[0] for line in BLOCKS[0].split()] == ["CLOUD", "SOURCE", "BUNDLE"]
    assert all(subprocess.run(["bash", "-n"], input=one, text=True, check=False).returncode == 0 for one in BLOCKS)
