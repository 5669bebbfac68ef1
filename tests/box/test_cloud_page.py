"""docs/cloud/set-up.md, pasted from nothing to a fleet of two boxes: blocks on a machine, the lines on the boxes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from box.bed import SIMULATED, WITH_K3S, Bed
from box.cloudmachine import BLOCKS, PARTS, Controller, block, booted, pages_machine
from e2e.boxnode import BoxNode
from e2e.k3s import K3s
from kits.browser import browser, need_chromium
from kits.enrolpage import become_admin, copy_line
from lab.boxkit import Box
from lab.labrun import HERE, wait_until
from playwright.sync_api import Page, expect

REPORT_MS = 180_000


def chromium_on_the_lan(folder: Path) -> str:
    """Return a program that runs this machine's Chromium on the boxes' LAN; Playwright's pipe to it passes through."""
    program = folder / "chromium"
    program.write_text(f'#!/bin/sh\nexec {HERE / "box"} lab {need_chromium()} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def controller(bed: Bed) -> Iterator[Controller]:
    """Yield the machine of the controller."""
    del bed  # it has made the bundle
    with booted() as machine:
        yield machine


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
    link = pages_machine(controller)
    assert controller.paste("edgegpu-cloud boxes\n").startswith("no boxes yet")
    program = chromium_on_the_lan(tmp_path)
    with browser(controller.console, "", program=program, expected=("net::ERR_",)) as context:  # its console restarts
        page = context.new_page()
        become_admin(page, link)
        _enrol_by_the_page(page, bed)
        _enrol_by_the_command(controller, second)
        wait_until(lambda: _free(controller) == [58, 58], what="both have told of their cards", timeout_s=180)
        shown = controller.paste(block("boxes -l site=hall"), timeout_s=120)
        rows = [line.split()[:2] for line in shown.splitlines()]
        assert [row for row in rows if row[1:] == ["online"]] == [["hall-1", "online"], ["hall-2", "online"]]
        assert len(re.findall(r"^hall-[12] +APPLIED ", shown, re.MULTILINE)) == 2
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


def _free(controller: Controller) -> list[int]:
    boxes = json.loads(controller.paste("edgegpu-cloud boxes -l site=hall --json\n"))
    return [one["capacity"]["free_units"] for one in boxes if one["capacity"]]


def test_the_blocks_are_those_of_the_page() -> None:
    assert [line.partition("=")[0] for line in BLOCKS[0].split()] == ["CLOUD", "SOURCE", "BUNDLE"]
    assert all(subprocess.run(["bash", "-n"], input=one, text=True, check=False).returncode == 0 for one in BLOCKS)
