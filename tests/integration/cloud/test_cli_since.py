"""`--since` leaves out what is older, and `commands -w` goes on with what is new: a real store, rows of both ages."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest
from kits.child import ENDS_S, running_child
from kits.cloudcli import ok, run
from kits.enrol import Box, Clock, Office, office

from edgegpu_cloud.store.records import BoxEvent

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

OLD_S, YOUNG_S = 3 * 3_600.0, 600.0
SINCE = {"1h": ["young"], "4h": ["young", "old"], "60s": []}
"""What is shown of the two, newest first."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Office]:
    """Yield a controller with a box, whose clock is that of its command line."""
    made = office(tmp_path / "cloud", clock=Clock(time.time() - OLD_S))
    assert Box(made.token(name="asr-hall"), host="asr-hall").enrolled(made.desk)
    yield made
    made.store.close()


def at_both(here: Office, add: Callable[[str, float], None]) -> None:
    """Add a row of each age, the old one first."""
    for name, age_s in (("old", OLD_S), ("young", YOUNG_S)):
        here.clock.now_s = time.time() - age_s
        add(name, here.clock.now_s)


OPS = {"old": "doctor.run", "young": "k3s.restart"}


def asked(here: Office) -> dict[str, str]:
    """Ask the box for one command of each age; return their names by id."""
    ids: dict[str, str] = {}
    at_both(here, lambda name, _: ids.update({here.fleet.command("asr-hall", OPS[name], {}, wait_s=86_400): name}))
    return ids


def test_commands_that_are_older_are_left_out(here: Office) -> None:
    folder, names = here.layout.folder, asked(here)
    assert [names[one["id"]] for one in ok("commands", "--json", folder=folder).json] == ["young", "old"]
    for since, wanted in SINCE.items():
        found = ok("commands", "--since", since, "--json", folder=folder).json
        assert [names[one["id"]] for one in found] == wanted, since
        rows = ok("commands", "asr-hall", "--since", since, folder=folder).out
        assert [name for name in OPS if OPS[name] in rows] == sorted(wanted), since
    assert ok("commands", "--since", "60s", folder=folder).out.startswith("no commands since 20")


def test_alarms_that_are_older_are_left_out(here: Office) -> None:
    def add(name: str, now_s: float) -> None:
        with here.store.write() as tx:
            tx.notes.alarm(f"test.{name}", device="", text=name, now_s=now_s)

    at_both(here, add)
    folder = here.layout.folder
    assert [one["text"] for one in ok("alarms", "--json", folder=folder).json] == ["young", "old"]
    for since, wanted in SINCE.items():
        assert [one["text"] for one in ok("alarms", "--since", since, "--json", folder=folder).json] == wanted, since
        rows = ok("alarms", "--since", since, folder=folder).out
        assert [name for name in OPS if f"test.{name}" in rows] == sorted(wanted), since


def test_events_that_are_older_are_left_out_and_all_that_are_younger_are_shown(here: Office) -> None:
    device = here.fleet.box("asr-hall").device

    def add(name: str, now_s: float) -> None:
        events = [
            BoxEvent(device=device, kind="test", level="info", text=f"{name}-{number}", about="", box_at=0, at_s=now_s)
            for number in range(12)
        ]
        with here.store.write() as tx:
            tx.notes.add_events(events)

    at_both(here, add)
    folder = here.layout.folder
    assert len(ok("box", "asr-hall", "--json", folder=folder).json["events"]) == 10, "the last ten without it"
    for since, wanted in SINCE.items():
        texts = [f"{name}-{number}" for name in wanted for number in reversed(range(12))]
        found = ok("box", "asr-hall", "--since", since, "--json", folder=folder).json["events"]
        assert [one["text"] for one in found] == texts, since
        lines = ok("box", "asr-hall", "--since", since, folder=folder).out.splitlines()
        assert [line.rpartition("test: ")[2] for line in lines if "test: " in line] == texts, since


@pytest.mark.parametrize("words", [("commands",), ("alarms",), ("box", "asr-hall")])
def test_what_is_no_length_of_time_is_refused(here: Office, words: tuple[str, ...]) -> None:
    done = run(*words, "--since", "soon", folder=here.layout.folder)
    assert (done.code, "--since" in done.err) == (2, True), done.err


@contextmanager
def watching(here: Office, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run `commands -w` as a person does."""
    command = [sys.executable, "-m", "edgegpu_cloud.cli.app", "commands", "-w", *words]
    env = {**os.environ, "EDGEGPU_CLOUD": str(here.layout.folder)}
    with running_child(command, env=env) as running:
        yield running


def test_watched_commands_go_on_with_what_is_asked_and_what_changes_until_ctrl_c(here: Office) -> None:
    asked(here)
    here.clock.now_s = time.time()
    with watching(here, "--since", "1h") as (process, lines):
        assert lines.readline().split() == ["ID", "BOX", "OP", "ASKED", "STATE", "BY"]
        assert lines.readline().split()[1:3] == ["asr-hall", "k3s.restart"], "the old one is left out"
        new = here.fleet.command("asr-hall", "inventory.refresh", {}, wait_s=600)
        added = lines.readline()
        assert (added.split()[:3], "waiting for the box" in added) == ([new, "asr-hall", "inventory.refresh"], True)
        here.fleet.revoke("asr-hall")
        ended = [lines.readline() for _ in range(2)]
        assert [line.split()[2] for line in ended] == ["k3s.restart", "inventory.refresh"], "oldest first"
        assert all("UNKNOWN" in line for line in ended), ended
        process.send_signal(signal.SIGINT)
        assert (process.wait(ENDS_S), lines.read()) == (130, ""), "each was shown once"


def test_watched_commands_as_json_are_a_line_each(here: Office) -> None:
    names = asked(here)
    with watching(here, "--json") as (process, lines):
        assert [names[json.loads(lines.readline())["id"]] for _ in range(2)] == ["old", "young"]
        new = here.fleet.command("asr-hall", "inventory.refresh", {}, wait_s=600)
        assert json.loads(lines.readline())["id"] == new
        process.send_signal(signal.SIGINT)
        assert (process.wait(ENDS_S), lines.read()) == (130, "")
