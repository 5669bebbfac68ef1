"""The states of a transaction, which may follow which, and what to do in each when its author is gone."""

from enum import StrEnum

MAX_ATTEMPTS = 3
"""How often k3s may start with new files that are not verified."""


class TransactionState(StrEnum):
    """The state of a transaction; it is in the journal before what it names begins."""

    PREPARED = "PREPARED"
    """Old and new contents are in the journal, what recovery needs is in place, and the dead-man is armed."""
    STAGED = "STAGED"
    """The new contents are beside their targets."""
    SWAPPED = "SWAPPED"
    """Targets are being replaced, one rename each; units are stopped and started."""
    RESTARTING = "RESTARTING"
    """All targets are replaced; k3s is being restarted with them."""
    VERIFYING = "VERIFYING"
    """The machine is being checked."""
    COMMITTED = "COMMITTED"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    INCONSISTENT = "INCONSISTENT"
    """The rollback has failed; `why` says what is where. It is tried again at each start of k3s and at each boot."""


class RecoveryDecision(StrEnum):
    """What a process that finds a transaction in the journal has to do."""

    NOTHING = "nothing"
    WAIT = "wait"
    """Its author is at work."""
    DISCARD = "discard"
    """No target was touched: remove what was prepared, and write ROLLED_BACK."""
    VERIFY = "verify"
    """The new files may be tried until the deadline: k3s may start with them, the agent verifies and commits."""
    ROLL_BACK = "roll-back"
    FINISH_ROLLBACK = "finish-rollback"
    """The rollback has begun: continue it; all its steps can be done twice."""


TERMINAL = frozenset({TransactionState.COMMITTED, TransactionState.ROLLED_BACK})
"""The final states of a transaction."""

TRIED = frozenset({TransactionState.RESTARTING, TransactionState.VERIFYING})
"""The states in which all files of the plan are in place, and k3s may start with them."""

NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.PREPARED: frozenset(
        {TransactionState.STAGED, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT}
    ),
    TransactionState.STAGED: frozenset(
        {TransactionState.SWAPPED, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT}
    ),
    TransactionState.SWAPPED: frozenset(
        {TransactionState.RESTARTING, TransactionState.VERIFYING, TransactionState.ROLLING_BACK}
    ),
    TransactionState.RESTARTING: frozenset(
        {TransactionState.RESTARTING, TransactionState.VERIFYING, TransactionState.ROLLING_BACK}
    ),
    TransactionState.VERIFYING: frozenset(
        {TransactionState.VERIFYING, TransactionState.COMMITTED, TransactionState.ROLLING_BACK}
    ),
    TransactionState.ROLLING_BACK: frozenset(
        {TransactionState.ROLLING_BACK, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT}
    ),
    TransactionState.INCONSISTENT: frozenset({TransactionState.ROLLING_BACK}),
    TransactionState.COMMITTED: frozenset({TransactionState.PREPARED, TransactionState.ROLLING_BACK}),
    TransactionState.ROLLED_BACK: frozenset({TransactionState.PREPARED, TransactionState.ROLLING_BACK}),
}
"""The states that may follow each state. RESTARTING and VERIFYING follow themselves when attempts are counted. After
COMMITTED and ROLLED_BACK another transaction begins, with PREPARED, or with ROLLING_BACK when it is the guard's."""

_ABANDONED: dict[TransactionState, RecoveryDecision] = {
    TransactionState.PREPARED: RecoveryDecision.DISCARD,
    TransactionState.STAGED: RecoveryDecision.DISCARD,
    TransactionState.SWAPPED: RecoveryDecision.ROLL_BACK,  # perhaps half of the files are replaced: they are not tried
    TransactionState.RESTARTING: RecoveryDecision.ROLL_BACK,
    TransactionState.VERIFYING: RecoveryDecision.ROLL_BACK,
    TransactionState.COMMITTED: RecoveryDecision.NOTHING,
    TransactionState.ROLLING_BACK: RecoveryDecision.FINISH_ROLLBACK,
    TransactionState.ROLLED_BACK: RecoveryDecision.NOTHING,
    TransactionState.INCONSISTENT: RecoveryDecision.FINISH_ROLLBACK,
}


def may_follow(state: TransactionState, after: TransactionState) -> bool:
    """Return whether the state `after` may follow `state` in the journal."""
    return after in NEXT[state]


def after_crash(
    state: TransactionState, *, same_boot: bool, deadline_passed: bool, attempts: int, author_alive: bool
) -> RecoveryDecision:
    """Return what to do about a transaction that the journal has at `state`.

    `attempts`: how often k3s has started with the new files. `deadline_passed`: nothing extends the deadline while the
    new files are tried; an undo sets its own. No author survives a boot. edgegpu-recover decides by the same table.
    """
    if author_alive and same_boot and not deadline_passed and state not in TERMINAL:
        return RecoveryDecision.WAIT
    if state in TRIED and not deadline_passed and attempts < MAX_ATTEMPTS:
        return RecoveryDecision.VERIFY
    return _ABANDONED[state]
