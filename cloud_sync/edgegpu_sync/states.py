"""The states of a command, and the codes that say why it ended."""

from enum import StrEnum


class CommandState(StrEnum):
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
        """Whether no state follows it."""
        return not FOLLOWERS[self]

    @property
    def begun(self) -> bool:
        """Whether the action may have begun, or is over."""
        return self not in {CommandState.RECEIVED, CommandState.ACCEPTED}


_ENDS = frozenset(
    {CommandState.SUCCEEDED, CommandState.FAILED, CommandState.ROLLED_BACK, CommandState.REJECTED, CommandState.UNKNOWN}
)

FOLLOWERS: dict[CommandState, frozenset[CommandState]] = {
    CommandState.RECEIVED: frozenset({CommandState.ACCEPTED, CommandState.REJECTED, CommandState.EXPIRED}),
    CommandState.ACCEPTED: frozenset({CommandState.RUNNING, CommandState.REJECTED, CommandState.EXPIRED}),
    CommandState.RUNNING: _ENDS | {CommandState.VERIFYING},
    CommandState.VERIFYING: _ENDS - {CommandState.REJECTED},
    CommandState.SUCCEEDED: frozenset(),
    CommandState.FAILED: frozenset(),
    CommandState.ROLLED_BACK: frozenset(),
    CommandState.REJECTED: frozenset(),
    CommandState.EXPIRED: frozenset(),
    CommandState.UNKNOWN: frozenset(),
}
"""The states that may follow each. RUNNING to REJECTED: an action found, before any change, that it may not run."""


class ResultCode(StrEnum):
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
