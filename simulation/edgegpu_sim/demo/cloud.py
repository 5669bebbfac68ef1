"""The demo of a box in a cloud: an app's limits refused with numbers, and set; sharing uninstalled and installed."""

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from edgegpu_agent.demo.model import CONTAINER, DemoError, DemoService
from edgegpu_agent.demo.plan import ServiceAmounts
from edgegpu_agent.demo.stage import DemoStage
from edgegpu_sim.demo.box import DemoBox, box
from edgegpu_sim.demo.controller import DemoController
from edgegpu_sim.demo.embedded import EmbeddedBed
from edgegpu_sim.demo.processes import CommandOutcome, Processes

_TAKEN = 4
"""The units that the third service gets after a refusal: those that the two others leave."""


@dataclass(slots=True)
class CloudScenario:
    """The scenario of one box and its cloud, step by step."""

    bed: EmbeddedBed
    stage: DemoStage
    controller: DemoController
    box: DemoBox
    say: Callable[[str], None]

    def play(self, amounts: ServiceAmounts) -> None:
        """Run all steps of the scenario, from a box that belongs to no cloud.

        Raises:
            DemoError: an expected state is not reached in time.
        """
        self._deploy(amounts)
        self.controller.start()
        self._enrol()
        self._change(amounts)

    def play_enrolled(self, amounts: ServiceAmounts) -> None:
        """Run the steps of the scenario on a box that belongs to the cloud already.

        Raises:
            DemoError: an expected state is not reached in time.
        """
        self._deploy(amounts)
        self._change(amounts)

    @property
    def _name(self) -> str:
        return self.bed.node

    def _deploy(self, amounts: ServiceAmounts) -> None:
        for name, units in (("detector", amounts.first), ("tracker", amounts.second), ("counter", amounts.third)):
            self.stage.run(DemoService(name, units))

    def _change(self, amounts: ServiceAmounts) -> None:
        self._cloud("command", self._name, "inventory.refresh", "--wait")
        self._refused(amounts.too_much)
        self._set(_TAKEN)
        self._off_and_on(amounts.third)
        self._told()

    def _enrol(self) -> None:
        """Enrol the box by its own command line, with a token of the cloud."""
        self.say(f"  $ edgegpu-cloud enrol --name {self._name}")
        made = self.controller.ask("enrol", "--name", self._name, "--json")
        if made.status:
            raise DemoError(f"cannot make a token: {made.text.strip()}")
        line = json.loads(made.text)
        self.say("      a line with a token, for a box that has nothing yet; this one has edgegpu already:")
        where = ("--url", line["url"], "--ca-sha256", line["ca_sha256"])
        done = self.box.run("agent", "enrol", *where, secret=line["token"])
        if done.status:
            raise DemoError("cannot go on: the box is not enrolled")
        shown = self.controller.run("boxes", until=lambda seen: "online" in seen.text)
        if "online" not in shown.text:
            raise DemoError(f"the box does not come online; it says:\n{self.box.ask('agent', 'status').text.strip()}")

    def _refused(self, units: int) -> None:
        numbers = rf"needs {units} \S+ on one card; card 0 has \d+ free"
        # the preview depends on what the box has reported
        shown = self._cloud(*self._words(units, "--preview"), status=1, until=lambda seen: seen.status == 1)
        self._says(shown, r"does not fit")
        # the box reports its cluster within seconds of its start; before that it gets no desired state
        done = self._limits(units, status=1, until=lambda seen: "which cluster" not in seen.text)
        reason = self._says(done, rf"Rejected: NO_ROOM: {numbers}.*")
        self.stage.goes_on(DemoService("counter", units), phase="Rejected", reason=reason, command=self._line(units))

    def _set(self, units: int) -> None:
        before = self.stage.seen
        self._says(self._limits(units, status=0), r"Applied")
        self.stage.runs(DemoService("counter", units), before, command=self._line(units))

    def _off_and_on(self, units: int) -> None:
        self.say("  (sharing on the box: its installer is a stand-in here, which stops and starts the plugin)")
        self._cloud("uninstall", self._name, "--yes", "--wait")
        gone = not self.bed.runs
        self.stage.expect(gone, "sharing is uninstalled, and the plugin runs")
        words = "sharing is uninstalled: pods that have a card keep it"
        line = f"edgegpu-cloud uninstall {self._name} --wait"
        self.stage.goes_on(DemoService("counter", _TAKEN), phase="Running", reason=words, command=line)
        done = self._limits(units, status=1)
        reason = self._says(done, r"waits for GPU sharing: .*")
        self.stage.goes_on(DemoService("counter", units), phase="Rejected", reason=reason, command=self._line(units))
        self._cloud("install", self._name, "--wait")
        self.stage.expect(self.bed.runs, "sharing is installed, and the plugin does not run")
        self._set(units)

    def _told(self) -> None:
        self.stage.expect(self.box.run("agent", "status").status == 0, "the box says that something is wrong")
        self.stage.expect(self.box.run("journal", "--limit", "6").status == 0, "the box's journal cannot be read")

    def _limits(
        self, units: int, *, status: int, until: Callable[[CommandOutcome], bool] | None = None
    ) -> CommandOutcome:
        return self._cloud(*self._words(units, "--wait"), status=status, until=until)

    def _words(self, units: int, how: str) -> tuple[str, ...]:
        app = f"{self.bed.namespace}/counter"
        amounts = ("--memory", str(units), "--core", "1")
        return ("limits", "set", self._name, app, "--container", CONTAINER, *amounts, how)

    def _line(self, units: int) -> str:
        return " ".join(("edgegpu-cloud", *self._words(units, "--wait")))

    def _cloud(
        self, *words: str, status: int = 0, until: Callable[[CommandOutcome], bool] | None = None
    ) -> CommandOutcome:
        done = self.controller.run(*words, until=until)
        line = f"edgegpu-cloud {' '.join(words)}"
        self.stage.expect(done.status == status, f"{line} ended with {done.status}, {status} is right")
        return done

    def _says(self, done: CommandOutcome, pattern: str) -> str:
        """Return the part of a command's output that matches a pattern; a missing match is a failure of the demo."""
        found = re.search(pattern, done.text)
        self.stage.expect(found, f"nothing like {pattern!r} is said: {done.text.strip()!r}")
        return found[0] if found else ""


def play_cloud(
    bed: EmbeddedBed, stage: DemoStage, amounts: ServiceAmounts, say: Callable[[str], None], *, mosquitto: str | None
) -> None:
    """Run the scenario on a bed, and end all processes that it started.

    Args:
        bed: a bed with one card of 94 units.
        stage: the stage of the act.
        amounts: the amounts of three services, and too much for the third.
        say: takes lines for people.
        mosquitto: the program; None for the embedded broker.

    Raises:
        DemoError: the scenario cannot continue.
    """
    with ExitStack() as stack:
        folder = bed.folder / "cloud"
        processes = stack.enter_context(Processes(bed.folder, {}))
        one = stack.enter_context(box(bed, processes, say))
        act = CloudScenario(bed, stage, DemoController(folder, processes, say, mosquitto=mosquitto), one, say)
        before = len(stage.failures)
        try:
            act.play(amounts)
        except DemoError as error:
            raise DemoError(f"{error}{processes.log_ends()}") from error
        if len(stage.failures) > before:
            say(processes.log_ends())
