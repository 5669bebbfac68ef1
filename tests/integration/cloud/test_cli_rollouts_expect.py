"""A rollout from the command line is for the boxes that its preview has shown: by a token, and by a yes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from kits.clipair import Pair, made_pair
from kits.todaysstores import TodaysStores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = ("rollouts", "start", "sharing", "--policy", "spread", "-l", "site=hall")
_WITHIN_S = 120.0


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number in range(3):
            pair.site.add(number, f"hall-{number}", site="hall")
        pair.site.add(9, "yard-9", site="yard")
        yield pair


def swapped(pair: Pair) -> None:
    """Let one box leave and another join: there are as many as before."""
    assert pair.here("label", "hall-0", "site=yard").code == 0
    assert pair.here("label", "yard-9", "site=hall").code == 0


def test_the_token_of_a_preview_starts_it_for_those_boxes_alone(pair: Pair) -> None:
    for asked in (pair.here, pair.there):
        shown = asked(*START, "--preview")
        token = shown.out.splitlines()[-1].split()[-1]
        assert asked(*START, "--preview", "--json").json["seen"] == token
        assert len(token) < 40, "a few boxes are no long token"
        swapped(pair)
        refused = asked(*START, "--expect", token)
        assert (refused.code, refused.out) == (1, "")
        assert "joined: yard-9" in refused.err
        assert "left: hall-0" in refused.err
        assert asked("rollouts", "list", "--json").json == []
        assert pair.here("label", "hall-0", "site=hall").code == 0
        assert pair.here("label", "yard-9", "site=yard").code == 0
    started = pair.there(*START, "--expect", token, "--json")
    assert (started.code, started.json["boxes"]) == (0, 3), started.err


@pytest.mark.parametrize("token", ["x", "3:", "3:AAAA", "3.AAAA", "3:" + "A" * 5_000])
def test_what_is_no_token_is_a_usage_error(pair: Pair, token: str) -> None:
    wrong = pair.there(*START, "--expect", token)
    assert wrong.code in {1, 2}, "3: is the token of three boxes that nobody knows"
    assert pair.here("rollouts", "list", "--json").json == []


def test_a_preview_and_an_expectation_are_not_given_together(pair: Pair) -> None:
    assert pair.here(*START, "--preview", "--expect", "0:").code == 2


class Terminal:
    """The command on a terminal of its own: what it prints is read as it comes, and it is answered."""

    def __init__(self, pair: Pair, *words: str) -> None:
        self._end, end = pty.openpty()
        command = [sys.executable, "-m", "edgegpu_cloud.cli.app", "--server", pair.url, *words]
        self._process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, env={**os.environ, "COLUMNS": "200"}
        )
        os.close(end)
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Read until a pattern is there, or the command has ended."""
        until_s = time.monotonic() + _WITHIN_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < until_s, self.text
            try:
                self.text += os.read(self._end, 4_096).decode()
            except OSError:  # a terminal whose other end is closed
                assert re.search(pattern, self.text), self.text

    def answer(self, text: str) -> int:
        """Answer, read to the end, and return the exit status."""
        os.write(self._end, f"{text}\n".encode())
        while True:
            try:
                if not (more := os.read(self._end, 4_096)):
                    break
            except OSError:
                break
            self.text += more.decode()
        os.close(self._end)
        return self._process.wait(timeout=_WITHIN_S)


def test_on_a_terminal_a_yes_is_for_the_boxes_that_were_shown(pair: Pair) -> None:
    asked = Terminal(pair, *START)
    asked.read_until(r"start it for 3 boxes\? \[y/N\]")
    assert "hall-0" in asked.text
    swapped(pair)
    assert asked.answer("y") == 1
    assert "joined: yard-9" in asked.text
    again = Terminal(pair, *START)
    again.read_until(r"start it for 3 boxes\?")
    assert again.answer("n") == 1
    assert pair.here("rollouts", "list", "--json").json == []
    last = Terminal(pair, *START)
    last.read_until(r"start it for 3 boxes\?")
    assert last.answer("y") == 0
    (one,) = pair.here("rollouts", "list", "--json").json
    assert one["boxes"] == 3


def test_who_says_yes_before_is_not_asked(pair: Pair) -> None:
    asked = Terminal(pair, *START, "--yes")
    asked.read_until("rollout 1 has started")
    assert asked.answer("") == 0
    assert "start it for" not in asked.text


def test_what_an_abort_would_give_back_is_shown_and_nothing_is_changed(pair: Pair) -> None:
    assert pair.here(*START, "--yes").code == 0
    for asked in (pair.here, pair.there):
        shown = asked("rollouts", "abort", "1", "--return", "--preview")
        assert (shown.code, shown.out) == (0, "no box gets anything back\n"), "none has been changed yet"
        document = asked("rollouts", "abort", "1", "--return", "--preview", "--json").json
        assert document == {"boxes": 0, "steps": [], "left": [], "more_boxes": 0}
        wrong = asked("rollouts", "abort", "1", "--preview")
        assert wrong.code == 2
        assert "without --return no box gets anything back" in wrong.err
    assert pair.there("rollouts", "show", "1", "--json").json["state"] == "RUNNING"
