"""`make demo` on a terminal: the README's five steps by hand on its console, Ctrl-C, and that nothing is left of it."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from kits.browser import browser, need_chromium
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from playwright.sync_api import Page

PASSWORD = "four words are enough here"  # noqa: S105  (the demo's, for this run)
DEMO = (sys.executable, "-m", "edgegpu_sim.demo", "--no-scenarios")
UP, CTRL_C = "Ctrl-C ends everything.", b"\x03"
SOON_MS, APPLIED_MS = 60_000, 180_000
"""For what a page shows by itself, and for what a box has to do before; long, because machines are busy."""


class Terminal:
    """The demo on a terminal of its own, and all that it has printed."""

    def __init__(self, folder: Path, *, command: Sequence[str] = DEMO) -> None:
        self._ours, theirs = pty.openpty()
        env = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder.parent)}
        env.pop("GRPC_VERBOSITY", None)
        words = ["setsid", "--ctty", *command]
        self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.text = ""
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while part := self._part():
            self.text += part.decode(errors="replace").replace("\r\n", "\n")
            if UP in self.text:
                self._up.set()
        self._up.set()

    def _part(self) -> bytes:
        try:
            return os.read(self._ours, 65_536)
        except OSError:  # Linux says so at the end
            return b""

    def wait_until_up(self) -> None:
        assert self._up.wait(240), self.text
        assert UP in self.text, self.text

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Wait for the end; return the exit status. Where it does not come, the demo is ended."""
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(60)
            self._reader.join(10)
            os.close(self._ours)


@pytest.mark.cloud
@pytest.mark.timeout(600)  # the start alone took 143 s on a machine with a load of 15
@pytest.mark.usefixtures("simdriver_build")
def test_the_readmes_steps_by_hand(short_tmp: Path) -> None:
    need_chromium()
    folder = short_tmp / "t"
    folder.mkdir()
    demo = Terminal(folder)
    try:
        demo.wait_until_up()
        link = re.search(r"(https://127\.0\.0\.1:\d+)/link\?code=\S+", demo.text)
        assert link is not None, demo.text
        assert sorted(line.strip() for line in demo.text.splitlines() if "services" in line) == [
            "hall-1  1 card, 3 services",
            "hall-2  2 cards, 3 services",
            "yard-1  2 cards, 2 services",
        ]
        with browser(link[1], "") as context:
            page = context.new_page()
            sign_in(page, link[0])
            play_hall_1(page)
            page.goto(link[1])
            play_hall_2(page)
        shown = len(demo.text)
    finally:
        demo.press(CTRL_C)
        status = demo.end()
    assert status == 0, demo.text
    assert demo.text[shown:].replace("^C", "").split("\n") == ["", "ending the boxes and their cloud", ""]
    assert list(folder.iterdir()) == []


def sign_in(page: Page, link: str) -> None:
    """Step 1."""
    page.goto(link)
    page.get_by_label("Name").fill("anna")
    for label in ("Password, at least 12 characters", "The same password again"):
        page.get_by_label(label).fill(PASSWORD)
    page.get_by_role("button", name="Save and sign in").click()


def play_hall_1(page: Page) -> None:
    """Steps 2 and 3: ten units lack six, four are applied."""
    expect(page.get_by_text("3 of 94 units free")).to_be_visible(timeout=SOON_MS)
    page.get_by_role("link", name="hall-1").click()
    assert bars(page, pieces=3) == [[1, 40, 50]]
    page.get_by_role("link", name=re.compile("counter.*: 1 unit")).first.click()
    page.get_by_label("Memory", exact=True).fill("10")
    expect(page.get_by_text("missing 6 units on card 0")).to_be_visible(timeout=SOON_MS)
    set_units(page, 4)
    page.get_by_role("link", name="hall-1").first.click()
    expect(page.get_by_role("link", name=re.compile("counter.*: 4 units")).first).to_be_visible(timeout=SOON_MS)


def play_hall_2(page: Page) -> None:
    """Steps 4 and 5: twenty units fit on the other card; sharing goes and comes."""
    page.get_by_role("link", name="hall-2").click()
    assert bars(page, pieces=3) == [[4, 4, 20], []]
    page.get_by_role("link", name=re.compile("tracker.*: 4 units")).first.click()
    page.get_by_label("Memory", exact=True).fill("20")
    expect(page.get_by_text("fits on card 1").first).to_be_visible(timeout=SOON_MS)
    set_units(page, 20)
    page.get_by_role("link", name="hall-2").first.click()
    expect(page.get_by_role("link", name=re.compile("tracker.*: 20 units")).first).to_be_visible(timeout=SOON_MS)
    assert bars(page, pieces=3) == [[4, 20], [20]]
    page.get_by_role("link", name="GPU sharing on this box").click()
    page.get_by_role("button", name="Take GPU sharing off hall-2").click()
    page.get_by_role("button", name="Take GPU sharing off on hall-2").click()
    expect(page.get_by_text("GPU sharing is off: no units are handed out")).to_be_visible(timeout=APPLIED_MS)
    page.get_by_role("link", name="GPU sharing on this box").click()
    page.get_by_role("button", name="Install GPU sharing on hall-2").click()
    expect(page.get_by_text("GPU sharing is off: no units are handed out")).to_be_hidden(timeout=APPLIED_MS)


def set_units(page: Page, units: int) -> None:
    """Type units, press the button that says what it does, and wait until the box has applied them."""
    page.get_by_label("Memory", exact=True).fill(str(units))
    button = page.locator("[data-sets]")
    expect(button).to_contain_text(f"{units} units", timeout=SOON_MS)
    button.click()
    expect(page.locator("#outcome")).to_contain_text("Applied", timeout=APPLIED_MS)


def bars(page: Page, *, pieces: int) -> list[list[int]]:
    """Return each card's bar on the page of a box, in units, least first, once there are so many pieces in all.

    Apps come in any order, and the old pod of a change is there for a moment beside the new one.
    """
    expect(page.locator(".card .bar:not(.core) .piece rect")).to_have_count(pieces, timeout=SOON_MS)
    cards = [card.locator(".piece rect").all() for card in page.locator(".card .bar:not(.core)").all()]
    return [sorted(int(piece.get_attribute("width") or "0") // 10 for piece in pieces) for pieces in cards]


@pytest.mark.cloud
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("simdriver_build")
def test_its_output_goes_through_tee_and_ctrl_c_ends_both(short_tmp: Path) -> None:
    folder = short_tmp / "t"
    folder.mkdir()
    log, status = short_tmp / "log", short_tmp / "status"
    line = f"trap : INT; {shlex.join(DEMO)} | tee {log}; echo ${{PIPESTATUS[0]}} > {status}"
    demo = Terminal(folder, command=("bash", "-c", line))
    try:
        demo.wait_until_up()
        assert re.search(r"https://127\.0\.0\.1:\d+/link\?code=\S+", log.read_text())
    finally:
        demo.press(CTRL_C)
        demo.end()
    assert status.read_text() == "0\n", demo.text
    assert "Traceback" not in demo.text
    assert list(folder.iterdir()) == []


@pytest.mark.cloud
def test_without_a_terminal_or_with_no_console_it_ends_by_itself(short_tmp: Path) -> None:
    done = subprocess.run(DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no terminal here, so nothing is shown: --console starts the console all the same\n"
    (short_tmp / "t").mkdir()
    demo = Terminal(short_tmp / "t", command=(*DEMO, "--no-console"))
    assert (demo.end(), demo.text) == (0, "")
