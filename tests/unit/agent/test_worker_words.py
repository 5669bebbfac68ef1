"""What was put back while the agent was away ends in the act's own words."""

from collections.abc import Iterator

import pytest
from kits.worker import Wire, fast_folder, wired
from kits.workercontroller import RESTART
from kits.workerodd import OddAct, OddBox, end, odd
from kits.workerworld import World

from edgegpu_agent.ports import ActionOutcome, ActionStopped, Acts
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.states import CommandState, ResultCode


class TellingAct(OddAct):
    """An act that knows why."""

    def __init__(self, world: World, told: ActionOutcome | None) -> None:
        super().__init__(world)
        self.told = told

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        del id_, args, token
        self._raise("verify")
        return self.told


class TellingBox(OddBox):
    """A box with it."""

    told: ActionOutcome | None = None

    def acts(self) -> Acts:
        others = super().acts()
        self.act = TellingAct(self.world, self.told)
        return {**others, RESTART: self.act}


@pytest.fixture
def box() -> Iterator[TellingBox]:
    with fast_folder() as folder:
        made = TellingBox(folder)
        yield made
        made.crash()


def cut_short(wire: Wire, evidence: Evidence) -> CommandId:
    """Let the agent end in the middle of an act, and find that when it is back."""
    odd(wire).act.raises = {"act": ActionStopped("the agent ends")}
    id_ = wire.controller.command(RESTART)
    wire.exchange()
    wire.box.crash()
    wire.box.start()
    odd(wire).act.found = evidence
    return id_


def text(wire: Wire, id_: CommandId) -> str | None:
    return wire.controller.results[id_].text


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (
            Evidence.PUT_BACK,
            ActionOutcome(state=CommandState.ROLLED_BACK, code=ResultCode.ERROR, text="the agent of 2.0 dies"),
        ),
        (
            Evidence.BROKEN,
            ActionOutcome(state=CommandState.FAILED, code=ResultCode.INCONSISTENT, text="the disk is full"),
        ),
    ],
)
def test_the_act_says_why(box: TellingBox, evidence: Evidence, told: ActionOutcome) -> None:
    box.told = told
    wire = wired(box)
    id_ = cut_short(wire, evidence)
    wire.connect()
    wire.pass_time(10)
    assert end(wire, id_) == (told.state, told.code)
    assert text(wire, id_) == told.text


@pytest.mark.parametrize("told", [None, ActionOutcome(state=CommandState.SUCCEEDED, text="all is well")])
def test_an_act_that_knows_it_no_better_is_not_asked_twice(box: TellingBox, told: ActionOutcome | None) -> None:
    box.told = told
    wire = wired(box)
    id_ = cut_short(wire, Evidence.PUT_BACK)
    wire.connect()
    wire.pass_time(10)
    assert end(wire, id_) == (CommandState.ROLLED_BACK, ResultCode.CUT_SHORT)
    assert text(wire, id_) == "it was put back: see edgegpu journal"


def test_an_act_that_cannot_say_it_keeps_no_end_up(box: TellingBox) -> None:
    wire = wired(box)
    id_ = cut_short(wire, Evidence.PUT_BACK)
    odd(wire).act.raises = {"verify": OSError("no")}
    wire.connect()
    wire.pass_time(10)
    assert end(wire, id_) == (CommandState.ROLLED_BACK, ResultCode.CUT_SHORT)
