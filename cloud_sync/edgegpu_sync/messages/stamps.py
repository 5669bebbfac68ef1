"""The order of messages where no clock can be trusted: enrolment number, epoch, and a count within it."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from edgegpu_sync.wire import Count


@dataclass(frozen=True, slots=True)
class Epoch:
    """A birth of a box: a counter of its journal, and 64 random bits that a journal put back does not repeat."""

    count: Count
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The place of a message among all messages of its box: the `n`th since that birth of that enrolment."""

    enrolment: Count
    epoch: Epoch
    n: Count

    def after(self, other: "Stamp | None") -> bool:
        """Whether this stamp is newer, so that a store takes its message; two epochs of one count have no order."""
        if other is None:
            return True
        mine, its = (self.enrolment, self.epoch.count), (other.enrolment, other.epoch.count)
        if mine != its:
            return mine > its
        return self.epoch == other.epoch and self.n > other.n
