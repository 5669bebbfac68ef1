"""What people read of `edgegpu` and `edgegpu-cloud`, help and views: plain words, and none of the protocol.

Documents (`--json`) keep their keys: they are recorded in `data/outputs`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from golden import doors
from golden.outputs import BOX, OTHER, agent_answers, live, whole_status
from kits.cli import commands
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

    import typer

_PROTOCOL = re.compile(
    r"\b(desired|observed|settl(?:ed?|es|ing|ements?)|open|enrolment \d+|epoch|nonce)\b", re.IGNORECASE
)
_KEYS = re.compile(r'"[^"\n]*"')
"""Keys and values of documents in a help text."""


def has_plain_words(screen: str, text: str) -> None:
    assert text.strip(), screen
    found = [line for line in text.splitlines() if _PROTOCOL.search(line)]
    assert not found, screen


@pytest.mark.parametrize("app", [doors.edgegpu_app, doors.edgegpu_cloud_app], ids=["edgegpu", "edgegpu-cloud"])
def test_help_has_plain_words(app: typer.Typer) -> None:
    for words in commands(app):
        done = CliRunner().invoke(app, [*words, "--help"], prog_name="x", env={"COLUMNS": "160"})
        has_plain_words(f"{' '.join(words)} --help", _KEYS.sub("", done.stdout))


def test_views_of_the_cloud_have_plain_words(short_tmp: Path) -> None:
    """A fleet of two boxes, before they have answered, after it, and at their end."""
    cloud = short_tmp / "cloud"

    def say(*words: str, codes: tuple[int, ...] = (0,)) -> None:
        done = doors.edgegpu_cloud(*words, folder=cloud)
        assert done.code in codes, (words, done.err, done.out)
        has_plain_words(" ".join(words), done.out + done.err)

    def views() -> None:
        say("boxes", "-o", "wide")
        for box in (BOX, OTHER):
            say("box", box)
            say("limits", "show", box)
            say("sharing", "show", box)
        say("commands")
        say("alarms")

    say("init", "--name", "cloud.example")
    (cloud / "controller.db").unlink()
    bed = doors.ControllerBed(cloud, boxes=2)
    try:
        live(bed)
        limits = ("asr", "--memory", "4", "--core", "1")
        say("limits", "set", BOX, *limits, "--preview")
        say("limits", "set", BOX, *limits)
        say("limits", "set", OTHER, *limits, "--wait", "--timeout", "1", codes=(3,))
        say("sharing", "set", BOX, "--policy", "spread", "--unit-mib", "512", "--preview", codes=(1,))
        say("sharing", "set", BOX, "--policy", "spread")
        say("uninstall", BOX, "--yes")
        say("command", BOX, "k3s.restart", "--yes")
        say("command", OTHER, "doctor.run", "--wait", "--timeout", "1", codes=(3,))
        views()
        bed.settle(8)
        views()
        asked = json.loads(doors.edgegpu_cloud("commands", "--json", folder=cloud).out)
        for one in asked:
            say("watch", one["id"])
            say("cancel", one["id"], codes=(1,))
        say("limits", "show", BOX, "--preview")
        say("limits", "forget", BOX, "asr")
        say("sharing", "forget", BOX, "policy")
        say("command", OTHER, "k3s.restart", "--yes")
        say("revoke", OTHER, "--yes")
        views()
        say("boxes", "forget", OTHER, "--yes")
        say("confirm", BOX, codes=(1,))
    finally:
        bed.store.close()


def test_views_of_a_box_have_plain_words(short_tmp: Path) -> None:
    """Its cards and pods, its doctor, and what its agent was asked, in each state that there is."""

    def say(*words: str | Path, codes: tuple[int, ...] = (0, 1)) -> str:
        done = doors.edgegpu(*words)
        assert done.code in codes, (words, done.err, done.out)
        has_plain_words(" ".join(map(str, words)), done.out + done.err)
        return done.out

    with doors.plugin_socket(short_tmp, whole_status()) as socket:
        for name in ("status", "pods", "version"):
            say(name, "--socket", socket)
    say("doctor", "--list")
    say("doctor", "--root", short_tmp, "--check", "cloud", "--check", "enrolment", "--check", "link")
    say("agent", "status", "--root", short_tmp)
    file = short_tmp / "etc/edgegpu/agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(doors.write_agent_yaml("https://cloud.example", "ab" * 32))
    answer = json.loads(agent_answers()["agent-status"])
    (item,) = answer["items"].values()
    for state in doors.ItemState:
        told = {"policy": {**item, "state": state}, "exclusions": {**item, "state": doors.ItemState.OPEN}}
        body = json.dumps({**answer, "enrolment": 1, "items": told, "settling": "exclusions"})
        with doors.raw_server(short_tmp / f"{state}.sock", doors.http(body)) as socket:
            assert "exclusions  being applied" in say("agent", "status", "--socket", socket, "--root", short_tmp)


def test_the_journal_of_a_box_has_plain_words(short_tmp: Path) -> None:
    """Each kind of line in each state that the agent's sources give it."""
    text = "\n".join(path.read_text() for top in doors.PRODUCT for path in top.rglob("*.py"))
    written = set(re.findall(r'HistoryEntry\(\s*kind="(\w+)",[^\n]*?state="(\w+)"', text))
    assert {("desired", "OBSERVED"), ("item", "BEGUN"), ("keys", "TAKEN")} <= written
    states = [*written, *(("item", one) for one in doors.ItemState), *(("command", one) for one in doors.CommandState)]
    lines = tuple(
        doors.JournalLine(n=n, at=1_790_000_000, kind=kind, about="revision 3", state=state)
        for n, (kind, state) in enumerate(states)
    )
    with doors.raw_server(
        short_tmp / "a.sock", doors.http(doors.JournalAnswer(lines=lines).model_dump_json())
    ) as socket:
        done = doors.edgegpu("journal", "--socket", socket)
    assert len(done.out.splitlines()) == len(states)
    assert "settings revision 3  received" in done.out
    assert "setting  revision 3  waiting" in done.out
    has_plain_words("journal", done.out)
