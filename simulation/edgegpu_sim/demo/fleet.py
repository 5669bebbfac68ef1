"""The demo's console: three simulated boxes with different cards in one cloud, until Ctrl-C."""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from edgegpu_agent.demo.model import DemoError, DemoService
from edgegpu_agent.demo.plan import CARD_4G_MIB, CARD_8G_MIB, CARD_24G_MIB
from edgegpu_base.cli.output import counted
from edgegpu_sim.demo.box import box
from edgegpu_sim.demo.controller import DemoController
from edgegpu_sim.demo.embedded import EmbeddedBed, embedded
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.ports import answers, free_port

CONSOLE_PORT = 8_444
"""The port of the demo's console; another free one where it is taken."""


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


def show_fleet(
    say: Callable[[str], None], ended: threading.Event, *, mosquitto: str | None, boxes: Sequence[ShownBox] = BOXES
) -> None:
    """Start the fleet with its console, say how to sign in, and keep it until `ended` is set; then end all of it.

    Args:
        say: takes lines for people.
        ended: set by whoever wants the end.
        mosquitto: the program; None for the embedded broker.
        boxes: the boxes.

    Raises:
        DemoError: a part does not start.
    """
    say(f"\nconsole: {len(boxes)} simulated boxes in one cloud; it takes half a minute to start")
    with ExitStack() as stack:
        beds = [stack.enter_context(embedded(one.memories_mib, policy="first-fit", node=one.name)) for one in boxes]
        folder = beds[0].folder / "cloud"
        folder.mkdir()
        processes = stack.enter_context(Processes(folder, {}))
        port = free_port() if answers(CONSOLE_PORT) else CONSOLE_PORT
        controller = DemoController(folder / "edgegpu", processes, _quiet, mosquitto=mosquitto, console_port=port)
        controller.start()
        for shown, bed in zip(boxes, beds, strict=True):
            _deploy(bed, shown)
            _enrol(stack, controller, shown, bed)
            parts = (counted(len(shown.memories_mib), "card"), counted(len(shown.services), "service"))
            say(f"  {shown.name}  {', '.join(parts)}")
        _say_how(say, controller, port)
        try:
            ended.wait()
        finally:
            say("\nending the boxes and their cloud")


def _quiet(_: str) -> None:
    """Show nothing: the commands were shown in the scenario before."""


def _deploy(bed: EmbeddedBed, shown: ShownBox) -> None:
    for service in shown.services:
        bed.apply(bed.manifest(service))


def _enrol(stack: ExitStack, controller: DemoController, shown: ShownBox, bed: EmbeddedBed) -> None:
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


def _say_how(say: Callable[[str], None], controller: DemoController, port: int) -> None:
    link = controller.ask("people", "link", "--json")
    if link.status:
        raise DemoError(f"cannot make the link of the first person: {link.text.strip()}")
    say("\nThe console is up. Open this link, and choose a name and a password (it is good once):")
    say(f"  {json.loads(link.text)['link']}")
    say(f"  later: https://127.0.0.1:{port}/ (the browser warns: this cloud has made its own certificate)")
    say("Ctrl-C ends everything.")
