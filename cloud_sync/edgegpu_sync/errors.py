"""The errors of the protocol: refusals, each with a name under which it is counted."""

from enum import StrEnum


class SyncError(ValueError):
    """The base of this component's errors; the text says what cannot be done and why."""


class TooLargeError(SyncError):
    """A message above the size limit: the broker would close the connection on each try; make it smaller first."""


class RefusalReason(StrEnum):
    """The reasons for which a message is refused.

    A refused message is acknowledged, counted under this name, and has no effect.
    """

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
    """A message that is refused; `why` is the name under which it is counted."""

    def __init__(self, why: RefusalReason, text: str) -> None:
        super().__init__(f"{why}: {text}")
        self.why = why
