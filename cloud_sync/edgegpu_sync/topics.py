"""Every topic of the protocol as a type; no other module builds or parses the strings."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, get_args

from edgegpu_sync.errors import MessageRefusedError, RefusalReason, SyncError
from edgegpu_sync.ids import CommandId, DeviceId, OpName, command_id, device_id, op_name

PREFIX = "edgegpu/v1"
"""The version of the topics; a message's body has its own in `v`."""


class TopicKind(StrEnum):
    """What a topic is for: direction and name, as they stand in it after the device."""

    DESIRED = "down/desired"
    COMMAND = "down/cmd"
    RECEIPT = "down/receipt"
    KEYS = "down/keys"
    STATUS = "up/status"
    REPORTED = "up/reported"
    RESULT = "up/result"
    RESULT_BY_ID = "up/cmd"
    """Results as older agents send them: each under a topic of its own, which ends with the command's id."""
    INVENTORY = "up/inventory"
    ALLOC = "up/alloc"
    HEALTH = "up/health"
    EVENT = "up/event"
    METRICS = "up/metrics"

    @property
    def down(self) -> bool:
        """Whether the topic leads from the controller to a box."""
        return self.value.startswith("down/")

    @property
    def retained(self) -> bool:
        """Whether the broker keeps the last message for later subscribers.

        Commands are not retained: a retained one and a persistent session together deliver it twice.
        """
        return self in {TopicKind.DESIRED, TopicKind.KEYS, TopicKind.STATUS}


PlainKind = Literal[
    TopicKind.DESIRED,
    TopicKind.RECEIPT,
    TopicKind.KEYS,
    TopicKind.STATUS,
    TopicKind.REPORTED,
    TopicKind.RESULT,
    TopicKind.INVENTORY,
    TopicKind.ALLOC,
    TopicKind.HEALTH,
    TopicKind.EVENT,
    TopicKind.METRICS,
]
PLAIN_KINDS: dict[str, PlainKind] = {kind.value: kind for kind in get_args(PlainKind)}
"""The kinds of which each box has one topic, by their text."""


@dataclass(frozen=True, slots=True)
class PlainTopic:
    """A topic of which each box has one: `edgegpu/v1/{device}/up/status`."""

    device: DeviceId
    kind: PlainKind

    def __str__(self) -> str:
        return f"{PREFIX}/{self.device}/{self.kind}"


@dataclass(frozen=True, slots=True)
class CommandTopic:
    """A command to a box: `edgegpu/v1/{device}/down/cmd/{op}/{id}`."""

    device: DeviceId
    op: OpName
    id: CommandId
    kind: ClassVar[Literal[TopicKind.COMMAND]] = TopicKind.COMMAND

    def __str__(self) -> str:
        return f"{PREFIX}/{self.device}/{self.kind}/{self.op}/{self.id}"


@dataclass(frozen=True, slots=True)
class ResultTopic:
    """The topic of one command's results, as older agents write them: `edgegpu/v1/{device}/up/cmd/{id}`."""

    device: DeviceId
    id: CommandId
    kind: ClassVar[Literal[TopicKind.RESULT_BY_ID]] = TopicKind.RESULT_BY_ID

    def __str__(self) -> str:
        return f"{PREFIX}/{self.device}/{self.kind}/{self.id}"


Topic = PlainTopic | CommandTopic | ResultTopic


def parse(text: str) -> Topic:
    """Read a topic; `parse(str(topic)) == topic` for each that there is.

    Raises:
        MessageRefusedError: UnknownTopic, for anything that is not exactly one of ours.
    """
    try:
        match text.split("/"):
            case ["edgegpu", "v1", device, "down", "cmd", op, id_]:
                return CommandTopic(device_id(device), op_name(op), command_id(id_))
            case ["edgegpu", "v1", device, "up", "cmd", id_]:
                return ResultTopic(device_id(device), command_id(id_))
            case ["edgegpu", "v1", device, way, name] if f"{way}/{name}" in PLAIN_KINDS:
                return PlainTopic(device_id(device), PLAIN_KINDS[f"{way}/{name}"])
    except SyncError as error:
        raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, str(error)) from error
    raise MessageRefusedError(RefusalReason.UNKNOWN_TOPIC, f"{text[:128]!r} is no topic of this protocol")


def box_filter(device: DeviceId) -> str:
    """Return the filter that a box subscribes to: everything for this box, and nothing for another."""
    return f"{PREFIX}/{device}/down/#"


CONTROLLER_FILTER = f"{PREFIX}/+/up/#"
"""The filter that the one controller of all boxes subscribes to; the broker lets only controllers do so."""


def uplink_filter(device: DeviceId) -> str:
    """Return the filter for all that one box sends, for a controller that shares the boxes with others."""
    return f"{PREFIX}/{device}/up/#"
