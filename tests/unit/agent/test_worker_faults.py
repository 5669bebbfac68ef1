"""Acts that raise, hang, stop or lie; an agent of another version; a journal without room."""

from collections.abc import Iterator
from typing import Any

import pytest
from kits.worker import ROOM, Box, Wire
from kits.workercontroller import REFRESH, RESTART
from kits.workerodd import end, odd, odd_wire

from edgegpu_agent.ports import ActionOutcome, ActionStopped, Acts
from edgegpu_sync.rules.ops import Evidence
from edgegpu_sync.states import CommandState, ResultCode


@pytest.fixture
def wire() -> Iterator[Wire]:
    with odd_wire() as wire:
        yield wire


@pytest.mark.parametrize(
    ("where", "before_it", "ends"),
    [
        ("token", False, (CommandState.REJECTED, ResultCode.ERROR)),
        ("act", True, (CommandState.FAILED, ResultCode.ERROR)),
        ("act", False, (CommandState.SUCCEEDED, None)),
        ("verify", False, (CommandState.FAILED, ResultCode.ERROR)),
    ],
)
def test_an_act_that_raises(wire: Wire, where: str, ends: tuple[CommandState, str | None], *, before_it: bool) -> None:
    odd(wire).act.raises, odd(wire).act.before_it = {where: OSError("no")}, before_it
    id_ = wire.controller.command(RESTART)
    wire.pass_time(3)
    assert end(wire, id_) == ends
    assert wire.box.world.restarted_by[id_] == (where != "token" and not before_it)


def test_what_cannot_be_a_state_or_code_or_sent_ends_all_the_same(wire: Wire) -> None:
    act = odd(wire).act
    for says, ends in (
        (ActionOutcome(state=CommandState.EXPIRED), (CommandState.FAILED, "ERROR")),
        (
            ActionOutcome(state=CommandState.FAILED, code="not a code", text="x\0" * 3_000),
            (CommandState.FAILED, "ERROR"),
        ),
        (
            ActionOutcome(state=CommandState.REJECTED, code="PRECHECK", data={"x": "y" * 9_000}),
            (CommandState.REJECTED, "PRECHECK"),
        ),
        (ActionOutcome(state=CommandState.SUCCEEDED, data={"x": float("nan")}), (CommandState.SUCCEEDED, None)),
    ):
        act.says = says
        id_ = wire.controller.command(RESTART)
        wire.exchange()
        assert end(wire, id_) == ends
    assert wire.controller.results[id_].data == {"dropped": "larger than a result may be: logs.collect brings it"}


def test_an_act_that_stops_with_the_agent_is_told_by_its_traces_later(wire: Wire) -> None:
    odd(wire).act.raises = {"act": ActionStopped("the agent ends")}
    id_ = wire.controller.command(RESTART)
    wire.pass_time(3)
    assert wire.controller.tracked[id_].state is CommandState.RUNNING
    wire.box.crash()
    wire.box.start()
    wire.connect()
    wire.pass_time(3)
    assert end(wire, id_) == (CommandState.SUCCEEDED, None)
    assert wire.box.world.restarted_by == {id_: 1}


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        (Evidence.PUT_BACK, (CommandState.ROLLED_BACK, ResultCode.CUT_SHORT)),
        (Evidence.BROKEN, (CommandState.FAILED, ResultCode.INCONSISTENT)),
        (Evidence.OTHER, (CommandState.FAILED, ResultCode.SUPERSEDED)),
        (Evidence.UNDER_WAY, (CommandState.FAILED, ResultCode.TIMED_OUT)),
        (Evidence.UNREADABLE, (CommandState.FAILED, ResultCode.TIMED_OUT)),
    ],
)
def test_what_is_found_after_a_crash(wire: Wire, found: Evidence, ends: tuple[CommandState, str]) -> None:
    odd(wire).act.raises = {"act": ActionStopped("the agent ends")}
    id_ = wire.controller.command(RESTART)
    wire.exchange()
    wire.box.crash()
    wire.box.start()
    odd(wire).act.found = found
    wire.connect()
    wire.pass_time(1_000, 50)
    assert end(wire, id_) == ends


def test_an_act_that_never_comes_back_is_ended_without_it_and_nothing_begins_beside_it(wire: Wire) -> None:
    first, second = wire.controller.command(RESTART), wire.controller.command(RESTART)
    box = wire.box
    for message in wire.controller.sends():
        box.arrive(*message)
    box.executor.run()  # the token
    box.worker.run_round()
    (hanging,) = box.executor.jobs
    box.executor.jobs.clear()
    box.wait(900 + 119)
    wire.exchange()
    assert wire.controller.tracked[first].state is CommandState.RUNNING
    box.wait(2)
    wire.exchange()
    assert end(wire, first) == (CommandState.FAILED, ResultCode.TIMED_OUT)
    third = wire.controller.command(REFRESH)
    wire.exchange()
    assert wire.controller.tracked[third].ended  # idempotent ones go on
    assert wire.controller.tracked[second].state is CommandState.ACCEPTED
    hanging[1]()
    wire.exchange()
    assert end(wire, second) == (CommandState.SUCCEEDED, None)
    assert wire.controller.ends[first] == [CommandState.FAILED]


def test_a_journal_without_room_takes_nothing_new_until_there_is_some(wire: Wire) -> None:
    box, names = wire.box, list[str]()
    core = box.worker._core  # noqa: SLF001  (only what is begun fills the journal: the test does so in its place)
    while box.journal.free_pages >= ROOM.spare_from(0):
        names.append(f"ballast {len(names)}")
        core.save(core.held, notes={names[-1]: {"x": "y" * 60_000}})
    acked = len(box.link.acked)
    id_ = wire.controller.command(REFRESH)
    for message in wire.controller.sends():
        box.arrive(*message)
    box.wait(5)
    assert (len(box.link.acked), box.worker.status().journal_full) == (acked, True)
    assert not box.world.refreshed_by
    core.save(core.held, notes=dict[str, Any].fromkeys(names))
    box.wait(5)
    wire.exchange()
    assert wire.controller.tracked[id_].ended
    assert (len(box.link.acked) > acked, box.worker.status().journal_full) == (True, False)


def test_another_version_of_the_agent_ends_what_it_does_not_know(wire: Wire) -> None:
    odd(wire).act.raises = {"act": ActionStopped("it is upgraded")}
    running = wire.controller.command(RESTART)
    waiting = wire.controller.command(RESTART)
    wire.exchange()
    wire.box.crash()
    less = Less(wire.box.folder, wire.box.world)
    less.turns, less.epochs = wire.box.turns, wire.box.epochs
    wire.box = less
    less.start()
    wire.connect()
    wire.exchange()
    assert end(wire, running) == (CommandState.UNKNOWN, ResultCode.CUT_SHORT)
    assert end(wire, waiting) == (CommandState.REJECTED, ResultCode.UNKNOWN_OP)


class Less(Box):
    """An agent that can restart nothing."""

    def acts(self) -> Acts:
        return {op: act for op, act in super().acts().items() if op != RESTART}
