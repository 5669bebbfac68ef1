"""The demo's box in a cloud: the whole of it over the embedded broker, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.demo.model import DemoError
from edgegpu_agent.demo.plan import CARD_24G_MIB, FIELD_FILLING
from edgegpu_agent.demo.run import DemoOutcome
from edgegpu_agent.demo.stage import DemoStage
from edgegpu_sim.demo.acts import play_in_console
from edgegpu_sim.demo.cloud import play_cloud
from edgegpu_sim.demo.controller import find_mosquitto, missing
from edgegpu_sim.demo.embedded import embedded
from edgegpu_sim.demo.fleet import BOXES, ScenarioPace, show_fleet
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.demo.standin import StandInServer
from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgegpu_agent.demo.run import Say
    from edgegpu_sim.demo.acts import ConsoleBox
    from edgegpu_sim.demo.controller import DemoController

SET = "edgegpu-cloud limits set box-1 baetyl-edge/counter --container main --memory {} --core 1 --wait"
OFF = "edgegpu-cloud uninstall box-1 --wait"


def left_of(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in lines if str(folder) in line]


@pytest.mark.chaos  # make demo does it too: this takes its time and says what was told
@pytest.mark.usefixtures("simdriver_build")
def test_limits_are_refused_and_set_and_sharing_goes_and_comes() -> None:
    said: list[str] = []
    with embedded((CARD_24G_MIB,), policy="first-fit") as bed:
        stage = DemoStage(bed=bed, scenario="cloud", say=said.append, clock=time.monotonic)
        play_cloud(bed, stage, FIELD_FILLING, said.append, mosquitto=None)
        assert not answers(int(re.findall(r" init .*--https-port (\d+)", "\n".join(said))[0]))
    assert stage.failures == [], "\n".join(said)
    told = [(row.units, row.phase, row.command) for row in stage.rows[3:]]
    assert told == [
        (10, "Rejected", SET.format(10)),
        (4, "Running", SET.format(4)),
        (4, "Running", OFF),
        (1, "Rejected", SET.format(1)),
        (1, "Running", SET.format(1)),
    ]
    first, refused, grown, kept, off, last = stage.rows[2:]
    assert refused.reason.startswith("Rejected: NO_ROOM: needs 10 vcuda-memory on one card; card 0 has 4 free")
    assert off.reason.startswith("waits for GPU sharing: ")
    assert (refused.pod, kept.pod, off.pod) == (first.pod, grown.pod, grown.pod)
    assert len({first.pod, grown.pod, last.pod}) == 3
    assert "card 0: 4 units, core 98 free, 1 of them held by the app" in "\n".join(said)
    assert "an embedded broker takes its place" in "\n".join(said)
    assert left_of(bed.folder) == []
    assert not bed.folder.exists()


def test_what_was_started_ends_whatever_happens(tmp_path: Path) -> None:
    def fails() -> None:
        os.mkfifo(tmp_path / "fifo")
        with Processes(tmp_path, {}) as processes:
            processes.start("one", ["tail", "-f", tmp_path / "one.log"])
            processes.start("two", ["sh", "-c", f"sh -c 'read x < {tmp_path}/fifo' & wait"])
            processes.start("three", ["sh", "-c", "exit 0"])
            processes.stop("three")
            processes.stop("three")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert left_of(tmp_path) == []


def test_who_ends_or_is_not_there_is_told(tmp_path: Path) -> None:
    with Processes(tmp_path, {"WORD": "gone"}) as processes:
        processes.start("one", ["sh", "-c", "echo $WORD; exit 4"])
        with pytest.raises(DemoError, match=r"cannot go on: one ended with status 4\n.*\n  gone"):
            processes.wait("one", lambda: False, what="it", timeout_s=10)
        with pytest.raises(DemoError, match="cannot start /nowhere/at/all: No such file"):
            processes.start("two", ["/nowhere/at/all"])
        called = processes.call(["sh", "-c", "echo $WORD $MORE; echo err >&2; exit 3"], {"MORE": "more"})
        assert (called.status, called.text) == (3, "gone more\nerr\n")
        processes.start("three", ["sleep", "60"])
        with pytest.raises(DemoError, match=r"waited 0.1 s for a word"):
            processes.wait("three", lambda: answers(free_port()), what="a word", timeout_s=0.1)
    line = "tail -f /dev/null '/no file'"
    with (
        Processes(tmp_path, {}, call_s=0.1) as processes,
        pytest.raises(DemoError, match=f"cannot go on: {line} had not ended after 0.1 s; run the demo again"),
    ):
        processes.call(["tail", "-f", Path("/dev/null"), "/no file"])


def test_what_is_not_there_is_named() -> None:
    assert missing(mosquitto="/usr/sbin/mosquitto") == missing(mosquitto=None) == ""
    assert missing(lambda name: name != "amqtt", mosquitto="/usr/sbin/mosquitto") == ""
    assert "apt-get install mosquitto" in missing(lambda name: name != "amqtt", mosquitto=None)
    lacking = missing(lambda name: name not in {"fastapi", "edgegpu_cloud"}, mosquitto="/usr/sbin/mosquitto")
    assert lacking.startswith("edgegpu_cloud, fastapi not installed here: ")


def test_a_stand_in_repeats_what_the_demo_answers(short_tmp: Path) -> None:
    def answer(program: str, words: Sequence[str]) -> tuple[int, str]:
        return (3, f"{program}: {' '.join(words)}\n") if words else (1 // len(words), "")

    program = short_tmp / "systemctl"
    with StandInServer(short_tmp / "sock", answer) as programs:
        programs.write(program)
        assert call(program, "restart", "a b") == (3, "systemctl: restart a b\n")
        assert call(program) == (70, "systemctl: integer division or modulo by zero\n")
    assert call(program, "x") == (70, "systemctl: the demo is over: Connection refused\n")


def call(*command: str | Path) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
    return done.returncode, done.stdout


class Shown:
    """What the demo has said, with the pace that ends it at the last line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pace = ScenarioPace(sign_in_s=0, step_s=0)

    def say(self, text: str) -> None:
        self.lines.append(text)
        if text.strip().startswith("Ctrl-C"):
            self.pace.ended.set()

    def at(self, beginning: str) -> int:
        """Return the place of the first line that begins so."""
        return next(place for place, line in enumerate(self.lines) if line.strip().startswith(beginning))


@pytest.mark.chaos
@pytest.mark.usefixtures("simdriver_build")
def test_the_console_is_up_with_its_boxes_until_the_end_and_nothing_is_left() -> None:
    shown = Shown()
    show_fleet(shown.say, shown.pace, mosquitto=find_mosquitto(), boxes=BOXES[1:2])
    text = "\n".join(shown.lines)
    link = re.search(r"(https://127\.0\.0\.1:(\d+))/link\?code=\S+", text)
    assert link is not None, text
    assert "hall-2  2 cards, 3 services" in text
    assert not answers(int(link[2]))


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("simdriver_build")
def test_the_scenarios_play_in_the_console_step_by_step() -> None:
    shown, outcome = Shown(), DemoOutcome()
    seen: list[dict[str, int]] = []

    def play(boxes: Sequence[ConsoleBox], controller: DemoController, say: Say) -> None:
        play_in_console(outcome, boxes, controller, with_cloud=False, say=say)
        listed = json.loads(controller.ask("boxes", "--json").text)
        seen.append({one["name"]: one["capacity"]["units"] for one in listed if one["online"]})

    show_fleet(shown.say, shown.pace, mosquitto=find_mosquitto(), play=play, many=2)
    text = "\n".join(shown.lines)
    assert outcome.failures == [], text
    assert [(row.scenario, row.units) for row in outcome.rows] == [
        *(("three-services", units) for units in (50, 40, 1, 10, 1)),
        *(("two-cards", units) for units in (4, 20, 20, 8, 8, 8, 12)),
    ]
    simple = {"press-line01-001": 58, "dock-line01-002": 32}
    assert seen == [{"hall-1": 94, "hall-2": 58, "yard-1": 32, **simple}], "the boxes of the scenarios, and two simple"
    links, first, over = (shown.at(one) for one in ("The console is up", "three-services, on hall-1", "The scenarios"))
    assert links < first < over, text
