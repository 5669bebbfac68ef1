"""The demo's console: three simulated boxes with different cards in one cloud, until Ctrl-C."""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from edgegpu_agent.demo.model import DemoError, DemoService
from edgegpu_agent.demo.plan import CARD_4G_MIB, CARD_8G_MIB, CARD_24G_MIB
from edgegpu_agent.demo.run import Say
from edgegpu_base.cli.output import counted
from edgegpu_sim.demo.acts import ConsoleBox
from edgegpu_sim.demo.box import DemoBox, box
from edgegpu_sim.demo.controller import DemoController
from edgegpu_sim.demo.embedded import EmbeddedBed, embedded
from edgegpu_sim.demo.many import start_many
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.ports import answers, free_port

CONSOLE_PORT = 8_444
"""The port of the demo's console; another free one where it is taken."""

SIGN_IN_S = 90.0
"""How long the scenarios wait for a person who looks."""

STEP_S = 3.0
"""The time that people have for each step of the scenarios."""

_LOOK_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShownBox:
    """A box of the demo's fleet: its name, its label `site`, the MiB of its cards, its services."""

    name: str
    site: str
    memories_mib: Sequence[int]
    services: Sequence[DemoService]


BOXES = (
    ShownBox(
        "hall-1",
        "hall",
        (CARD_24G_MIB,),
        (DemoService("detector", 50), DemoService("tracker", 40), DemoService("counter", 1)),
    ),
    ShownBox(
        "hall-2",
        "hall",
        (CARD_8G_MIB, CARD_8G_MIB),
        (DemoService("counter", 4), DemoService("detector", 20), DemoService("tracker", 4)),
    ),
    ShownBox("yard-1", "yard", (CARD_4G_MIB, CARD_4G_MIB), (DemoService("reader", 8), DemoService("writer", 8))),
)
"""Both scenarios can be played by hand: "1 to 10" on hall-1, "4 + 20 + 20" on hall-2, whose tracker still has 4."""

Play = Callable[[Sequence[ConsoleBox], DemoController, Say], None]
"""A function that plays scenarios on the boxes of a console."""


@dataclass(slots=True)
class ScenarioPace:
    """The pace of the scenarios while people look: they begin once somebody has signed in, and pause at each step."""

    sign_in_s: float = SIGN_IN_S
    step_s: float = STEP_S
    ended: threading.Event = field(default_factory=threading.Event)
    """Set by whoever wants the end."""

    def wait_for_person(self, controller: DemoController, say: Say) -> None:
        """Wait until a person has signed in, for a while."""
        ends = time.monotonic() + self.sign_in_s
        if self.sign_in_s:
            say(f"\nThe scenarios play in the console once you have signed in, or in {self.sign_in_s:g} s.")
        while time.monotonic() < ends and not self.ended.is_set():
            people = controller.ask("people", "list", "--json")
            if people.status == 0 and any(one["state"] == "active" for one in json.loads(people.text)):
                return
            self.ended.wait(_LOOK_S)

    def before(self, say: Say) -> Callable[[str], None]:
        """Return a function that says what is changed next, and lets people look for it."""

        def wait(text: str) -> None:
            if self.step_s:
                say(f"  next: {text}")
            self.ended.wait(self.step_s)

        return wait


def show_fleet(
    say: Say,
    pace: ScenarioPace,
    *,
    mosquitto: str | None,
    boxes: Sequence[ShownBox] = BOXES,
    play: Play | None = None,
    policy: str = "first-fit",
    many: int = 0,
) -> None:
    """Start the fleet with its console, say how to sign in, and keep it until the end; then end all of it.

    The console is up first: the boxes then start beside each other, and are seen joining.

    Args:
        say: takes lines for people.
        pace: of the scenarios, and when all ends.
        mosquitto: the program; None for the embedded broker.
        boxes: the boxes.
        play: plays the scenarios; None: the boxes have their services at once.
        policy: the placement policy of the boxes.
        many: so many simpler boxes join too.

    Raises:
        DemoError: a part does not start.
    """
    say(f"console: a cloud and {len(boxes)} simulated boxes start; the link comes within a minute")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eg", dir="/tmp")))
        processes = stack.enter_context(Processes(folder, {}))
        port = free_port() if answers(CONSOLE_PORT) else CONSOLE_PORT
        controller = DemoController(folder / "edgegpu", processes, _quiet, mosquitto=mosquitto, console_port=port)
        controller.start()
        opened = stack.enter_context(_Beside(len(boxes)))
        beds = [opened.begin(partial(_bed, shown, policy)) for shown in boxes]
        _say_how(say, controller, port)
        if many:
            start_many(many, controller, processes, folder / "many", say)
        joining = [
            opened.begin(partial(_join, shown, bed, controller, say, deploys=play is None))
            for shown, bed in zip(boxes, beds, strict=True)
        ]
        there = [one.result() for one in joining]
        try:
            if play is not None:
                _play(play, there, boxes, controller, pace, say)
            say("\nCtrl-C ends everything.")
            pace.ended.wait()
        finally:
            say("\nending the boxes and their cloud")


class _Beside:
    """Parts that start beside each other, in threads; all that have started end together, the last first."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPoolExecutor(number)
        self._begun: list[ExitStack] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for stack in reversed(self._begun):
            stack.close()

    def begin(self, start: Callable[[ExitStack], T]) -> "Future[T]":
        """Start a part; what it enters of its stack is left at the end."""
        stack = ExitStack()
        self._begun.append(stack)
        return self._pool.submit(start, stack)


def _bed(shown: ShownBox, policy: str, stack: ExitStack) -> EmbeddedBed:
    return stack.enter_context(embedded(shown.memories_mib, policy=policy, node=shown.name))


def _join(
    shown: ShownBox,
    bed_of: "Future[EmbeddedBed]",
    controller: DemoController,
    say: Say,
    stack: ExitStack,
    *,
    deploys: bool,
) -> ConsoleBox:
    """Let a box join the cloud, with its services where `deploys`, and load its cards from now on."""
    bed = bed_of.result()
    if deploys:
        _deploy(bed, shown)
    there = _enrol(stack, controller, shown, bed)
    there.start_load()
    services = (counted(len(shown.services), "service"),) if deploys else ()
    say(f"  {shown.name}  {', '.join((counted(len(shown.memories_mib), 'card'), *services))}")
    return ConsoleBox(bed=bed, box=there)


def _play(
    play: Play,
    there: Sequence[ConsoleBox],
    boxes: Sequence[ShownBox],
    controller: DemoController,
    pace: ScenarioPace,
    say: Say,
) -> None:
    """Play the scenarios, step by step, and leave the boxes with their services."""
    pace.wait_for_person(controller, say)
    controller.say = say
    for one in there:
        one.bed.before_change, one.box.say = pace.before(say), say
    play(there, controller, say)
    controller.say = _quiet
    for one, wanted in zip(there, boxes, strict=True):
        one.bed.before_change, one.box.say = _quiet, _quiet
        _deploy(one.bed, wanted)
    say("\nThe scenarios are over: the boxes have their services, for you to play both by hand (README.md).")


def _quiet(_: str) -> None:
    """Take a line for people and show it to nobody."""


def _deploy(bed: EmbeddedBed, shown: ShownBox) -> None:
    for service in shown.services:
        bed.apply(bed.manifest(service))


def _enrol(stack: ExitStack, controller: DemoController, shown: ShownBox, bed: EmbeddedBed) -> DemoBox:
    words = ("enrol", "--name", shown.name, "--label", f"site={shown.site}", "--json")
    made = controller.ask(*words)
    if made.status:
        raise DemoError(f"cannot make a token: {made.text.strip()}")
    line = json.loads(made.text)
    (bed.folder / "agent").mkdir()
    mine = stack.enter_context(Processes(bed.folder / "agent", {}))
    there = stack.enter_context(box(bed, mine, _quiet))
    done = there.ask("agent", "enrol", "--url", line["url"], "--ca-sha256", line["ca_sha256"], secret=line["token"])
    if done.status:
        raise DemoError(f"cannot enrol {shown.name}: {done.text.strip()}")
    return there


def _say_how(say: Say, controller: DemoController, port: int) -> None:
    link = controller.ask("people", "link", "--json")
    if link.status:
        raise DemoError(f"cannot make the link of the first person: {link.text.strip()}")
    say("\nThe console is up. Open this link, and choose a name and a password (it is good once):")
    say(f"  {json.loads(link.text)['link']}")
    say(f"  later: https://127.0.0.1:{port}/ (the browser warns: this cloud has made its own certificate)")
    say("Its boxes join:")
