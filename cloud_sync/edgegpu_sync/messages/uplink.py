"""What a box reports of itself and of its commands: birth and will, reported state, results."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.ids import CommandIdField, OpNameField
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import (
    RESULT_MAX_BYTES,
    Code,
    Count,
    Hex,
    ItemName,
    Json,
    Line,
    MessageBody,
    Name,
    Seconds,
    Sha256,
    Text,
    Token,
    WireModel,
    clipped,
    encode,
)


class UplinkBody(MessageBody):
    """What each message of a box carries: its stamp, and how old the birth was when it was sent."""

    enrolment: Count
    epoch: Epoch
    n: Count
    age_s: Seconds = 0

    @property
    def stamp(self) -> Stamp:
        """The place of this message among all messages of the box."""
        return Stamp(enrolment=self.enrolment, epoch=self.epoch, n=self.n)


class BoxVersions(WireModel):
    """What runs on the box; empty where there is none."""

    agent: Line
    plugin: Line = ""
    k3s: Line = ""
    driver: Line = ""
    os: Line = ""


class Birth(UplinkBody):
    """A box is there: sent at each connection, before anything else.

    `seq`, `floor`, `observed_rev` and `key_set` are the numbers that only rise, as the box has them: a controller that
    is behind takes them over. `instance` is a hash of machine id and DMI UUID: a cloned disk has another.
    `one_result_topic`: the agent can send all results under `up/result`; one that does not say so is older.
    """

    state: Literal["birth"]
    instance: Sha256
    boot: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")]
    versions: BoxVersions
    capabilities: Annotated[tuple[Token, ...], Field(max_length=200)]
    seq: Count
    floor: Count
    observed_rev: Count
    key_set: Count
    one_result_topic: bool = False


class LastWill(UplinkBody):
    """A box is gone: left with the broker at each connection, with the `n` after the birth's."""

    state: Literal["will"]


class Goodbye(UplinkBody):
    """A box goes, and says why: it is stopped, upgraded, or edgegpu is taken off it."""

    state: Literal["bye"]
    why: Literal["stop", "upgrade", "uninstall", "identity"]


Status = Annotated[Birth | LastWill | Goodbye, Field(discriminator="state")]


class ItemState(StrEnum):
    """How an item of a revision stands; all but Open are settled."""

    OPEN = "Open"
    APPLIED = "Applied"
    REJECTED = "Rejected"
    FAILED = "Failed"
    PENDING = "Pending"
    UNSUPPORTED = "Unsupported"
    ELSEWHERE = "Elsewhere"


class CardFreeNumbers(WireModel):
    """A card in the numbers of a refusal."""

    node: Name
    card: Line
    free_units: Count
    free_core: Count
    held_by_app_units: Count = 0


class Numbers(WireModel):
    """What an item needs and what there is, so that a person sees why it does not fit."""

    need_units: Count
    need_core: Count
    replicas: Count = 1
    verdict: Literal["fits", "fits_after_stop", "never_fits"]
    cards: Annotated[tuple[CardFreeNumbers, ...], Field(max_length=64)] = ()


class Condition(WireModel):
    """What is true of an item beside its settlement, `Drifted` with the manager that writes it back."""

    type: Token
    manager: Line = ""
    text: Text = ""


class ItemReport(WireModel):
    """How one item stands. `rev`, `hash` and `retry` name what was tried, as the box read it."""

    state: ItemState
    rev: Count
    hash: Hex
    retry: Count
    code: Code | None = None
    text: Text | None = None
    numbers: Numbers | None = None
    restored: bool | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=8)] | None = None


class Reported(UplinkBody):
    """How a box stands against what is desired: the whole of it each time, so that any one of them is enough."""

    observed_rev: Count
    observed_hash: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = ""
    """`wire.digest` of the spec that was observed: a controller whose store came from a backup finds another."""
    applied_rev: Count
    seq: Count
    floor: Count
    items: dict[ItemName, ItemReport]
    cluster: Line = ""
    holder: bool = False
    """Whether this box's agent holds the lease that settles the app limits of the cluster."""


def encode_reported(reported: Reported) -> bytes:
    """Encode a reported state; where it is too long the numbers are left out first, then texts and conditions.

    Raises:
        TooLargeError: never with at most `spec.MAX_APP_LIMITS` apps.
    """
    for left_out in ((), ("numbers",)):
        try:
            return encode(_without(reported, left_out))
        except TooLargeError:
            continue
    return encode(_without(reported, ("numbers", "text", "conditions")))


def _without(reported: Reported, fields: tuple[str, ...]) -> Reported:
    nothing = dict.fromkeys(fields)
    items = {name: item.model_copy(update=nothing) for name, item in reported.items.items()}
    return reported.model_copy(update={"items": items})


class CommandResult(UplinkBody):
    """Where a command stands. After a terminal state nothing follows.

    `id` is the command's. An older agent leaves it out: there it is in the topic.
    """

    id: CommandIdField | None = None
    op: OpNameField
    state: CommandState
    code: Code | None = None
    text: Text | None = None
    data: Json | None = None
    attempts: Count = 1


class CommandNotTaken(UplinkBody):
    """A command was not taken and nothing is known of it: no state, the controller signs it again or thinks anew.

    STALE_EPOCH: it was signed for an earlier birth. BEHIND: its seq belongs to another command, so the controller's
    numbers are from a backup. OLD_ENROLMENT: signed before the box was imaged anew. OUTBOX_FULL: there is no room even
    for a refusal that lasts. `id` and `for_seq` are those of the command, `seq` the highest that was taken.
    """

    id: CommandIdField | None = None
    op: OpNameField
    state: Literal["NOT_TAKEN"]
    code: Code
    for_seq: Count
    seq: Count
    floor: Count
    observed_rev: Count


Answer = CommandResult | CommandNotTaken


def encode_result(result: CommandResult) -> bytes:
    """Encode a result; data and text that do not fit into 8 KiB are cut, the state never."""
    try:
        return encode(result, limit_bytes=RESULT_MAX_BYTES)
    except TooLargeError:
        text = clipped(result.text or "", 900)
        note = {"dropped": "larger than a result may be: logs.collect brings it"}
        return encode(result.model_copy(update={"data": note, "text": text}), limit_bytes=RESULT_MAX_BYTES)
