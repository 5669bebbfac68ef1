"""What can go wrong with a message: refusals, each with a name under which it is counted."""

from enum import StrEnum


class SyncError(ValueError):
    """The base of this component's errors; the text says what cannot be and why."""


class TooLargeError(SyncError):
    """A message that a broker would answer by closing the connection, for ever: make it smaller before it is kept."""


class RefusalReason(StrEnum):
    """Why a message was refused. A refused message is acknowledged, counted under this name, and has no effect."""

    UNKNOWN_TOPIC = "UnknownTopic"
    OVERSIZE = "Oversize"
    MALFORMED = "Malformed"
    UNKNOWN_VERSION = "UnknownVersion"
    WRONG_DEVICE = "WrongDevice"
    UNKNOWN_KEY = "UnknownKey"
    FORGED = "Forged"
    OLD_KEY_SET = "OldKeySet"
    BROKEN_CHAIN = "BrokenChain"
    OLD_ENROLMENT = "OldEnrolment"
    NEWER_ENROLMENT = "NewerEnrolment"
    OLD_EPOCH = "OldEpoch"
    CLONED = "Cloned"
    OLD_REV = "OldRev"
    OTHER_SPEC = "OtherSpec"
    OLD_STAMP = "OldStamp"
    OUT_OF_WINDOW = "OutOfWindow"
    OUT_OF_REACH = "OutOfReach"


class MessageRefusedError(SyncError):
    """A message that is not taken; `why` is what it is counted under."""

    def __init__(self, why: RefusalReason, text: str) -> None:
        super().__init__(f"{why}: {text}")
        self.why = why
