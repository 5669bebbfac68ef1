"""The states of a command, and the codes that say why it ended."""

from enum import StrEnum


class State(StrEnum):
    """Where a command stands on its box."""

    RECEIVED = "RECEIVED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    VERIFYING = "VERIFYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    UNKNOWN = "UNKNOWN"

    @property
    def terminal(self) -> bool:
        """Whether nothing follows it."""
        return not FOLLOWERS[self]

    @property
    def begun(self) -> bool:
        """Whether the act may have been begun, or is over."""
        return self not in {State.RECEIVED, State.ACCEPTED}


_ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.ROLLED_BACK, State.REJECTED, State.UNKNOWN})

FOLLOWERS: dict[State, frozenset[State]] = {
    State.RECEIVED: frozenset({State.ACCEPTED, State.REJECTED, State.EXPIRED}),
    State.ACCEPTED: frozenset({State.RUNNING, State.REJECTED, State.EXPIRED}),
    State.RUNNING: _ENDS | {State.VERIFYING},
    State.VERIFYING: _ENDS - {State.REJECTED},
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.ROLLED_BACK: frozenset(),
    State.REJECTED: frozenset(),
    State.EXPIRED: frozenset(),
    State.UNKNOWN: frozenset(),
}
"""What may follow what. RUNNING to REJECTED is an act that found, before it changed anything, that it may not."""


class Codes(StrEnum):
    """Why a command ended as it did, or was not taken. A newer agent may send others: they are shown as they are."""

    UNKNOWN_OP = "UNKNOWN_OP"
    UNSUPPORTED = "UNSUPPORTED"
    BAD_ARGUMENTS = "BAD_ARGUMENTS"
    OUTBOX_FULL = "OUTBOX_FULL"
    SUPERSEDED = "SUPERSEDED"
    PRECHECK = "PRECHECK"
    NO_ROOM = "NO_ROOM"
    NOT_INSTALLED = "NOT_INSTALLED"
    INSTALLED = "INSTALLED"
    TOO_LATE = "TOO_LATE"
    TIMED_OUT = "TIMED_OUT"
    CUT_SHORT = "CUT_SHORT"
    ATTEMPTS = "ATTEMPTS"
    FORGOTTEN = "FORGOTTEN"
    REIMAGED = "REIMAGED"
    REVOKED = "REVOKED"
    SET_ASIDE = "SET_ASIDE"
    NO_RELEASE_KEY = "NO_RELEASE_KEY"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    DOWNGRADE = "DOWNGRADE"
    INCONSISTENT = "INCONSISTENT"
    ERROR = "ERROR"
    STALE_EPOCH = "STALE_EPOCH"
    BEHIND = "BEHIND"
    OLD_ENROLMENT = "OLD_ENROLMENT"
