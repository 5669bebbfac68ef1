"""A command cut at every step: before each write, between write and act, and again while it is being settled."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.sync import ID

from edgegpu_sync.ids import op_name
from edgegpu_sync.rules.commands import (
    CommandRecord,
    EndStep,
    RecoveryProbe,
    RecoveryStep,
    after_crash,
)
from edgegpu_sync.rules.ops import OPS, Declaration, Evidence, NoArgs, RestartRule
from edgegpu_sync.states import CommandState

RECORD = CommandRecord(id=ID, op=op_name("k3s.restart"), seq=1, args={}, until_s=1e9, left_s=1e9, boot="boot-0")


class CutError(Exception):
    """The agent was killed, or the power failed."""


@dataclass
class Box:
    """A journal that holds the last record, and a world that counts acts; it dies after `lives[i]` more steps."""

    op: Declaration
    lives: list[int]
    reboots: list[bool]
    record: CommandRecord = RECORD
    done: int = 0
    boots: int = 0
    left: int = 0
    written: list[CommandState] = field(default_factory=list)

    def step(self) -> None:
        if self.left == 0:
            raise CutError
        self.left -= 1

    def write(self, record: CommandRecord) -> None:
        self.step()
        if record.state is not self.record.state:
            self.written.append(record.state)
        self.record = record

    def act(self) -> None:
        self.step()
        self.done += 1
        self.step()

    def probe(self) -> RecoveryProbe:
        evidence = Evidence.DONE if self.done else Evidence.NOT_DONE
        return RecoveryProbe(boot=f"boot-{self.boots}", now_s=0.0, evidence=evidence)

    def run_until_it_ends(self) -> None:
        while not self.record.state.terminal:
            self.left = self.lives.pop(0) if self.lives else 99
            try:
                self.resume()
            except CutError:
                self.boots += self.reboots.pop(0) if self.reboots else 0

    def resume(self) -> None:
        decision = after_crash(self.record, self.probe(), self.op)
        match decision:
            case RecoveryStep.AWAIT_RENEWAL:
                self.write(self.record.renewed(1e9, boot=f"boot-{self.boots}", now_s=0.0))
            case RecoveryStep.ACT_AGAIN:
                self.write(self.record.again())
                self.act()
            case RecoveryStep.VERIFY if self.record.state is CommandState.RUNNING:
                self.write(self.record.verifying())
            case EndStep(state, code, text):
                self.write(self.record.ended(state, code, text))
        while not self.record.state.terminal:
            self.go_on()

    def go_on(self) -> None:
        match self.record.state:
            case CommandState.RECEIVED:
                self.write(self.record.admitted(OPS, room=True))
            case CommandState.ACCEPTED:
                self.write(self.record.begun("token"))
                self.act()
            case CommandState.RUNNING:
                self.write(self.record.verifying())
            case _:
                self.write(self.record.ended(CommandState.SUCCEEDED))


CASES = [(settling, reboot) for settling in RestartRule for reboot in (False, True)]
LIFE = st.integers(0, 8)


def ended(settling: RestartRule, lives: list[int], reboots: list[bool]) -> Box:
    op = Declaration(op=RECORD.op, settling=settling, args=NoArgs, lasts_s=1)
    box = Box(op, list(lives), list(reboots), record=replace(RECORD))
    box.run_until_it_ends()
    return box


def holds(box: Box) -> None:
    assert sum(state.terminal for state in box.written) == 1
    if box.op.settling is not RestartRule.IDEMPOTENT:
        assert box.done <= 1
    match box.record.state:
        case CommandState.SUCCEEDED:
            assert box.done >= 1
        case CommandState.UNKNOWN:
            assert box.op.settling is RestartRule.NEITHER
        case CommandState.FAILED:
            assert box.record.attempts == 3
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(("settling", "reboot"), CASES)
def test_cut_once_and_twice_at_every_step(settling: RestartRule, *, reboot: bool) -> None:
    for first in range(9):
        for second in range(9):
            holds(ended(settling, [first, second], [reboot, not reboot]))


@given(st.sampled_from(RestartRule), st.lists(LIFE, max_size=12), st.lists(st.booleans(), max_size=12))
@settings(max_examples=150)
def test_cut_again_and_again(settling: RestartRule, lives: list[int], reboots: list[bool]) -> None:
    holds(ended(settling, lives, reboots))


def test_uncut_it_is_done_once() -> None:
    for settling in RestartRule:
        box = ended(settling, [], [])
        assert (box.done, box.written) == (
            1,
            [CommandState.ACCEPTED, CommandState.RUNNING, CommandState.VERIFYING, CommandState.SUCCEEDED],
        )
