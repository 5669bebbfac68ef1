"""The agent is killed at every write of the journal and at every step of an act, once and twice, with a reboot or not.

What really happened is counted by the simulated world, whatever the agent believes.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kits.sync import limits
from kits.worker import Box, Wire, fast_folder, wired
from kits.workercontroller import INSTALL, LOGS, LOGS_ARGS, REFRESH, RESTART, UNINSTALL
from kits.workerworld import CutError

from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import Sharing, Spec
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import CommandState

ENOUGH = 400


@dataclass(frozen=True)
class Scenario:
    """What is asked; ids of commands, if there are any."""

    ask: Callable[[Wire], list[CommandId]]


def _limits(wire: Wire) -> list[CommandId]:
    wire.controller.desire(Spec(app_limits=(limits("asr", units=4), limits("ocr", units=90))))
    return []


def _both(wire: Wire) -> list[CommandId]:
    rev = wire.controller.desire(Spec(sharing=Sharing(rev=9, installed=True), app_limits=(limits("asr", units=4),)))
    return [wire.controller.command(RESTART), wire.controller.command(INSTALL, {"min_rev": rev})]


SCENARIOS = {
    "restart": Scenario(lambda wire: [wire.controller.command(RESTART)]),
    "two restarts": Scenario(lambda wire: [wire.controller.command(RESTART) for _ in range(2)]),
    "refresh": Scenario(lambda wire: [wire.controller.command(REFRESH)]),
    "logs": Scenario(lambda wire: [wire.controller.command(LOGS, LOGS_ARGS)]),
    "install": Scenario(lambda wire: [wire.controller.sharing(installed=True)[1]]),
    "uninstall": Scenario(lambda wire: [wire.controller.sharing(installed=False)[1]]),
    "limits": Scenario(_limits),
    "all": Scenario(_both),
}


@dataclass
class Story:
    """One scenario, with the agent killed at some of its steps."""

    folder: Path
    scenario: Scenario
    cuts: list[int]
    reboots: bool = False
    died: int = 0

    def play(self) -> tuple[Wire, list[CommandId]]:
        box = Box(self.folder)
        world = box.world
        wire = wired(self.folder, world=world, hook=lambda _when, _change: world.step())
        ids = self.scenario.ask(wire)
        wire.down += wire.controller.desired_message()
        world.steps, world.cut_at = 0, self._next_cut()
        self._until(wire, lambda: wire.pass_time(4, 2))
        world.cut_at = -1
        wire.pass_time(130, 65)
        return wire, ids

    def _next_cut(self) -> int:
        return self.cuts.pop(0) if self.cuts else -1

    def _until(self, wire: Wire, life: Callable[[], None]) -> None:
        """Live; when killed live again, and be killed again where that is asked for."""
        while True:
            try:
                life()
            except CutError:
                self.died += 1
                wire.box.crash()
                if self.reboots:
                    wire.box.world.reboot()
                wire.box.world.steps, wire.box.world.cut_at = 0, self._next_cut()

                def life() -> None:
                    wire.box.start()
                    wire.connect()
                    wire.pass_time(4, 2)

            else:
                return


def check(wire: Wire, ids: list[CommandId], *, reboots: bool) -> None:
    controller, world = wire.controller, wire.box.world
    assert controller.ends == {id_: [CommandState.SUCCEEDED] for id_ in ids}, controller.tracked
    for id_ in ids:
        op = controller.tracked[id_].op
        if op == RESTART:  # a reboot restarts it as well
            assert world.restarted_by[id_] == 1 or (reboots and world.restarted_by[id_] == 0)
        if op == REFRESH:
            assert 1 <= world.refreshed_by[id_] <= 3
        if op == LOGS:
            assert 1 <= world.uploads[id_] <= 3
        if op in {INSTALL, UNINSTALL}:
            assert list(world.transactions.values()) == [1]
            assert world.installed is (op == INSTALL)
    status = wire.box.worker.status()
    assert (status.commands, status.results_waiting, status.settling) == ((), 0, "")
    assert status.applied_rev == controller.sequence.rev
    if controller.reported is not None and "app_limits/default/ocr/main" in controller.reported.items:
        states = [item.state for item in controller.reported.items.values()]
        assert states == [ItemState.APPLIED, ItemState.REJECTED]
    assert {app for app, _ in world.patches} <= {"asr"}
    wire.box.crash()


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


def steps_of(folder: Path, name: str) -> int:
    """Return how many steps a life has in which nobody is killed."""
    story = Story(folder, SCENARIOS[name], [ENOUGH])
    wire, ids = story.play()
    assert story.died == 0
    steps = wire.box.world.steps
    check(wire, ids, reboots=False)
    return steps


@pytest.mark.parametrize(
    ("name", "reboots"),
    [*((name, False) for name in SCENARIOS), *((name, True) for name in ("restart", "logs", "all"))],
)
def test_cut_once_at_every_step(folder: Path, name: str, *, reboots: bool) -> None:
    steps = steps_of(folder / "whole", name)
    assert steps > 8
    for cut in range(1, steps + 1):
        story = Story(folder / str(cut), SCENARIOS[name], [cut], reboots=reboots)
        wire, ids = story.play()
        assert story.died == 1 or cut > steps - 4
        check(wire, ids, reboots=reboots)


def test_cut_many_times_in_a_row(folder: Path) -> None:
    rng = random.Random(4)
    for number in range(30):
        name = rng.choice(["restart", "two restarts", "install", "all", "limits"])
        cuts = [rng.randint(1, 24) for _ in range(rng.randint(2, 4))]
        story = Story(folder / str(number), SCENARIOS[name], list(cuts), reboots=rng.random() < 0.3)
        wire, ids = story.play()
        if _begun_too_often(wire):
            wire.box.crash()
            continue
        check(wire, ids, reboots=story.reboots)


def _begun_too_often(wire: Wire) -> bool:
    """Whether something was given up because the agent died three times in the middle of it, as it must be."""
    codes = {one.code for one in wire.controller.tracked.values()}
    items = wire.controller.reported.items.values() if wire.controller.reported else ()
    return "ATTEMPTS" in codes | {item.code for item in items}
