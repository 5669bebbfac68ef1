"""Every way through the states, cut at every point and gone on with, ends with all files new or all files old."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_installer.transaction.states import (
    MAX_ATTEMPTS,
    TERMINAL,
    RecoveryDecision,
    TransactionState,
    after_crash,
    may_follow,
)

FILES = 4
FORWARD = (
    TransactionState.PREPARED,
    TransactionState.STAGED,
    TransactionState.SWAPPED,
    TransactionState.RESTARTING,
    TransactionState.VERIFYING,
    TransactionState.COMMITTED,
)


@dataclass(frozen=True, slots=True)
class Box:
    """A journal's state and which files are new: what outlives a cut."""

    state: TransactionState
    new: tuple[bool, ...] = (False,) * FILES
    attempts: int = 0

    def write(self, state: TransactionState) -> Box:
        assert may_follow(self.state, state), (self.state, state)
        return replace(self, state=state)

    def put(self, number: int, *, new: bool) -> Box:
        files = list(self.new)
        files[number] = new
        return replace(self, new=tuple(files))


def forward(box: Box) -> list[Box]:
    """Every box that one sees on the way from a state to COMMITTED, one write each."""
    seen = [box]
    for state in FORWARD[FORWARD.index(box.state) + 1 :]:
        seen.append(seen[-1].write(state))
        if state is TransactionState.SWAPPED:
            for number in range(FILES):
                seen.append(seen[-1].put(number, new=True))
    return seen


def backward(box: Box) -> list[Box]:
    """The same for undoing: a rollback that was begun is begun again."""
    seen = [box]
    if box.state is not TransactionState.ROLLING_BACK:
        seen.append(box.write(TransactionState.ROLLING_BACK))
    for number in reversed(range(FILES)):
        seen.append(seen[-1].put(number, new=False))
    return [*seen, seen[-1].write(TransactionState.ROLLED_BACK)]


def found(box: Box, *, same_boot: bool, passed: bool) -> list[Box]:
    """What whoever finds it does, write by write."""
    decision = after_crash(
        box.state, same_boot=same_boot, deadline_passed=passed, attempts=box.attempts, author_alive=False
    )
    match decision:
        case RecoveryDecision.NOTHING:
            return [box]
        case RecoveryDecision.DISCARD:
            assert not any(box.new)
            return [box, box.write(TransactionState.ROLLED_BACK)]
        case RecoveryDecision.VERIFY:
            assert all(box.new), "half of the files would be tried"
            tried = replace(box, attempts=box.attempts + 1)
            return [tried, *forward(tried)[1:]]
        case RecoveryDecision.ROLL_BACK | RecoveryDecision.FINISH_ROLLBACK:
            return backward(box)
        case RecoveryDecision.WAIT:
            raise AssertionError("nobody is there to be waited for")


cuts = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.booleans()), max_size=8)


@given(cuts)
def test_cut_anywhere_any_number_of_times(places: list[tuple[int, bool, bool]]) -> None:
    way = forward(Box(TransactionState.PREPARED))
    for at, same_boot, passed in places:
        box = way[min(at, len(way) - 1)]
        way = found(box, same_boot=same_boot, passed=passed)
    end = way[-1]
    assert end.state in TERMINAL
    assert end.new == (end.state is TransactionState.COMMITTED,) * FILES
    assert end.attempts <= MAX_ATTEMPTS


def test_cut_at_every_point_and_at_every_point_of_what_follows() -> None:
    for box in forward(Box(TransactionState.PREPARED)):
        for passed in (True, False):
            for again in found(box, same_boot=False, passed=passed):
                end = found(again, same_boot=False, passed=True)[-1]
                assert end.state in TERMINAL
                assert end.new == (end.state is TransactionState.COMMITTED,) * FILES
