"""The states of a transaction, which may follow which, and what each means when its author is gone."""

from enum import StrEnum

MAX_ATTEMPTS = 3
"""How often k3s may start on new files that nobody has verified."""


class TransactionState(StrEnum):
    """How far a transaction has come; each is in the journal before what it names is begun."""

    PREPARED = "PREPARED"
    """Plan, old and new contents are in the journal; what recovery needs is being put in place."""
    STAGED = "STAGED"
    """The new contents lie beside their targets; the dead-man is being armed."""
    SWAPPED = "SWAPPED"
    """Targets are being replaced, one rename each; units are stopped and started."""
    RESTARTING = "RESTARTING"
    """All targets are replaced; k3s is being restarted on them."""
    VERIFYING = "VERIFYING"
    """It is being looked at whether everything works."""
    COMMITTED = "COMMITTED"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    INCONSISTENT = "INCONSISTENT"
    """Rolling back has failed; `why` says what stands where. It is tried again at each k3s start and boot."""


class RecoveryDecision(StrEnum):
    """What whoever finds a transaction in the journal has to do."""

    NOTHING = "nothing"
    WAIT = "wait"
    """Its author is at work."""
    DISCARD = "discard"
    """No target was touched: remove what was prepared, and record ROLLED_BACK."""
    VERIFY = "verify"
    """The new files may be tried, until the deadline: k3s may start on them, the agent verifies and commits."""
    ROLL_BACK = "roll-back"
    FINISH_ROLLBACK = "finish-rollback"
    """Rolling back was begun: go on, everything in it can be done twice."""


TERMINAL = frozenset({TransactionState.COMMITTED, TransactionState.ROLLED_BACK})
"""Nothing is left to be done about a transaction in these."""

TRIED = frozenset({TransactionState.RESTARTING, TransactionState.VERIFYING})
"""All files of the plan are in place in these, and k3s may come up with them."""

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
"""Which state may follow which. RESTARTING and VERIFYING follow themselves when attempts are counted; after COMMITTED
and ROLLED_BACK another transaction begins: PREPARED, or ROLLING_BACK for the guard's."""

_ABANDONED: dict[TransactionState, RecoveryDecision] = {
    TransactionState.PREPARED: RecoveryDecision.DISCARD,
    TransactionState.STAGED: RecoveryDecision.DISCARD,
    TransactionState.SWAPPED: RecoveryDecision.ROLL_BACK,  # perhaps half of the files are replaced: not worth a try
    TransactionState.RESTARTING: RecoveryDecision.ROLL_BACK,
    TransactionState.VERIFYING: RecoveryDecision.ROLL_BACK,
    TransactionState.COMMITTED: RecoveryDecision.NOTHING,
    TransactionState.ROLLING_BACK: RecoveryDecision.FINISH_ROLLBACK,
    TransactionState.ROLLED_BACK: RecoveryDecision.NOTHING,
    TransactionState.INCONSISTENT: RecoveryDecision.FINISH_ROLLBACK,
}


def may_follow(state: TransactionState, after: TransactionState) -> bool:
    """Return whether `after` may be written to a journal that stands at `state`."""
    return after in NEXT[state]


def after_crash(
    state: TransactionState, *, same_boot: bool, deadline_passed: bool, attempts: int, author_alive: bool
) -> RecoveryDecision:
    """Return what to do about a transaction that is found in the journal at `state`.

    `attempts`: how often k3s has started on the new files. `deadline_passed` is about the transaction's first deadline,
    which is never put off. No author survives a boot. edgegpu-recover decides by the same table.
    """
    if author_alive and same_boot and not deadline_passed and state not in TERMINAL:
        return RecoveryDecision.WAIT
    if state in TRIED and not deadline_passed and attempts < MAX_ATTEMPTS:
        return RecoveryDecision.VERIFY
    return _ABANDONED[state]
