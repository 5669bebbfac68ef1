"""The states of a transaction as values: which may follow which, and what each means when its author is gone."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from edgegpu_installer.changes import Deadline, FileChange, Plan, TransactionKind, check_path
from edgegpu_installer.transaction.journal import Clocks, TransactionRecord, remaining_s
from edgegpu_installer.transaction.states import (
    MAX_ATTEMPTS,
    NEXT,
    TERMINAL,
    RecoveryDecision,
    TransactionState,
    after_crash,
    may_follow,
)

RECOVER = Path(__file__).resolve().parents[3] / "installer/edgegpu-recover"
BOTH = (True, False)


def decide(
    state: TransactionState, *, same_boot: bool = True, passed: bool = False, attempts: int = 1
) -> RecoveryDecision:
    return after_crash(state, same_boot=same_boot, deadline_passed=passed, attempts=attempts, author_alive=False)


@pytest.mark.parametrize("state", [TransactionState.PREPARED, TransactionState.STAGED])
def test_what_touched_nothing_is_discarded(state: TransactionState) -> None:
    assert decide(state) is RecoveryDecision.DISCARD


@pytest.mark.parametrize("state", [TransactionState.RESTARTING, TransactionState.VERIFYING])
def test_new_files_are_tried_until_the_deadline_and_three_times_at_most(state: TransactionState) -> None:
    assert [decide(state, attempts=n) for n in range(4)] == [
        *([RecoveryDecision.VERIFY] * MAX_ATTEMPTS),
        RecoveryDecision.ROLL_BACK,
    ]
    assert decide(state, passed=True) is RecoveryDecision.ROLL_BACK


def test_half_of_the_files_are_not_tried() -> None:
    assert decide(TransactionState.SWAPPED) is RecoveryDecision.ROLL_BACK


def test_who_finds_an_end_does_nothing() -> None:
    for state in TERMINAL:
        assert decide(state, passed=True) is RecoveryDecision.NOTHING


def test_no_author_outlives_a_boot() -> None:
    for state in set(TransactionState) - TERMINAL:
        waits = [
            after_crash(state, same_boot=same, deadline_passed=False, attempts=0, author_alive=True)
            is RecoveryDecision.WAIT
            for same in BOTH
        ]
        assert waits == [True, False]


def test_the_program_decides_by_the_same_table() -> None:
    cells = list(itertools.product(TransactionState, BOTH, BOTH, range(MAX_ATTEMPTS + 2), BOTH))
    script = "\n".join(
        f"sh {RECOVER} decide {state} {int(same)} {int(passed)} {attempts} {int(alive)}"
        for state, same, passed, attempts, alive in cells
    )
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    ours = [
        after_crash(state, same_boot=same, deadline_passed=passed, attempts=attempts, author_alive=alive)
        for state, same, passed, attempts, alive in cells
    ]
    assert done.stdout.split() == [decision.value for decision in ours]


def test_every_state_leads_to_an_end() -> None:
    for state in TransactionState:
        seen, todo = set[TransactionState](), {state}
        while todo:
            seen |= todo
            todo = set().union(*(NEXT[found] for found in todo)) - seen
        assert seen >= TERMINAL
    assert not may_follow(TransactionState.SWAPPED, TransactionState.COMMITTED)
    assert not may_follow(TransactionState.STAGED, TransactionState.ROLLING_BACK)


@pytest.mark.parametrize(
    ("now", "left_s"),
    [
        (Clocks(wall_s=9e9, boot_s=40, boot_id="this"), 60),
        (Clocks(wall_s=1000, boot_s=100, boot_id="this"), 0),
        (Clocks(wall_s=1040, boot_s=5, boot_id="next"), 60),
        (Clocks(wall_s=1100, boot_s=5, boot_id="next"), 0),
        (Clocks(wall_s=999, boot_s=5, boot_id="next"), 0),
    ],
    ids=["same boot", "over", "next boot", "next boot, over", "next boot, a clock that was set back"],
)
def test_the_first_deadline_holds_over_a_boot(now: Clocks, left_s: float) -> None:
    record = TransactionRecord(
        "id",
        TransactionKind.INSTALL,
        TransactionState.VERIFYING,
        "this",
        started_s=1000,
        deadline_wall_s=1100,
        deadline_boot_s=100,
    )
    assert remaining_s(record, now) == left_s


@pytest.mark.parametrize(
    "path", ["etc/x", "/", "/etc/", "/etc//x", "/etc/../x", "/etc/./x", "/etc/a b", "/etc/x\n", ""]
)
def test_paths_that_a_shell_would_read_otherwise_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        check_path(path)


def test_a_plan_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="file and a link"):
        FileChange("/etc/x", content=b"", link_to="y")
    with pytest.raises(ValueError, match="twice: /etc/x"):
        Plan(TransactionKind.CHANGE, (FileChange("/etc/x"), FileChange("/etc/x", content=b"")))
    with pytest.raises(ValueError, match="unit"):
        Plan(TransactionKind.CHANGE, (), start=("a b",))


def test_a_deadline_has_no_less_than_nothing_left() -> None:
    now = [10.0]
    deadline = Deadline(12.0, lambda: now[0])
    assert deadline.remaining_s() == 2
    now[0] = 13
    assert deadline.passed()
    assert deadline.remaining_s() == 0
