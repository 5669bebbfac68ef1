"""The messages to a box: desired state, commands, receipts, keys."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from edgegpu_core.sentences import sentence
from edgegpu_sync.ids import CommandIdField
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.wire import Count, Json, Line, MessageBody, Seconds, WireModel


class Desired(MessageBody):
    """The truth of what a box should be. `rev` only rises within an enrolment, also after a controller's restore."""

    enrolment: Count
    rev: Count
    spec: Json
    """Read by `spec.asked`, item by item; written from `spec.Spec`."""


class Command(MessageBody):
    """A verb. Its op and id stand in the topic, which is signed with the body.

    `seq` is the command's place among all of its enrolment, given once; every one up to `floor` is settled. It is
    taken within `valid_s` seconds after the birth that `epoch` names, by the box's CLOCK_BOOTTIME.
    """

    enrolment: Count
    epoch: Epoch
    seq: Annotated[Count, Field(ge=1)]
    floor: Count
    valid_s: Seconds
    args: Json = Field(default_factory=dict)
    by: Line = ""
    at: Count = 0
    """Who asked for it, and when by the controller's clock: for the box's journal, no rule depends on them."""

    @model_validator(mode="after")
    def _floor_below(self) -> Self:
        if self.floor >= self.seq:
            raise ValueError(sentence("floor is not below seq"))
        return self


class RefreshRequest(StrEnum):
    """What a controller may ask to be sent at once."""

    STATUS = "status"
    REPORTED = "reported"
    INVENTORY = "inventory"
    ALLOC = "alloc"
    HEALTH = "health"
    METRICS = "metrics"


class Receipt(MessageBody):
    """What the controller has stored, and so need not be sent again.

    `results`: ids whose terminal state is stored. `epoch`, `n`: events with a stamp up to this one are stored.
    `rev`: what the current desired document has; a box that is behind waits for it. `server_time`: seconds since
    1970, which only rises: the floor of the box's clock. `spread`: one of many such, answer after 0 to 5 s.
    `one_result_topic`: this controller takes results under `up/result`; an older one does not say so.
    """

    enrolment: Count
    epoch: Epoch
    n: Count
    results: Annotated[tuple[CommandIdField, ...], Field(max_length=1_000)] = ()
    rev: Count
    server_time: Count
    ask: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Names of `RefreshRequest`; a box ignores those that it does not know."""
    spread: bool = False
    one_result_topic: bool = False


class KeySetLink(WireModel):
    """One key set: the exact text that was signed, and the root key's signature over it."""

    set: Annotated[str, Field(max_length=16_384)]
    sig: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{86}$")]


class Keys(MessageBody):
    """The controllers' keys: one set after the other, so that a box that was away can follow each step."""

    chain: Annotated[tuple[KeySetLink, ...], Field(min_length=1, max_length=256)]
