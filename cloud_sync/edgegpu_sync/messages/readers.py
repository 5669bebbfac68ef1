"""The body of each kind of topic, and its reader."""

from typing import Any

from pydantic import TypeAdapter

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.downlink import Command, Desired, Keys, Receipt
from edgegpu_sync.messages.telemetry import Alloc, BoxHealth, Event, Inventory, Metrics
from edgegpu_sync.messages.uplink import (
    Answer,
    Birth,
    CommandNotTaken,
    CommandResult,
    Goodbye,
    LastWill,
    Reported,
    Status,
)
from edgegpu_sync.topics import ResultTopic, Topic, TopicKind
from edgegpu_sync.wire import BODY_MAX_BYTES, RESULT_MAX_BYTES, decode

Message = (
    Desired
    | Command
    | Receipt
    | Keys
    | Birth
    | LastWill
    | Goodbye
    | Reported
    | CommandResult
    | CommandNotTaken
    | Inventory
    | Alloc
    | BoxHealth
    | Event
    | Metrics
)

READERS: dict[TopicKind, TypeAdapter[Any]] = {
    TopicKind.DESIRED: TypeAdapter(Desired),
    TopicKind.COMMAND: TypeAdapter(Command),
    TopicKind.RECEIPT: TypeAdapter(Receipt),
    TopicKind.KEYS: TypeAdapter(Keys),
    TopicKind.STATUS: TypeAdapter(Status),
    TopicKind.REPORTED: TypeAdapter(Reported),
    TopicKind.RESULT: TypeAdapter(Answer),
    TopicKind.RESULT_BY_ID: TypeAdapter(Answer),
    TopicKind.INVENTORY: TypeAdapter(Inventory),
    TopicKind.ALLOC: TypeAdapter(Alloc),
    TopicKind.HEALTH: TypeAdapter(BoxHealth),
    TopicKind.EVENT: TypeAdapter(Event),
    TopicKind.METRICS: TypeAdapter(Metrics),
}
"""One reader for each kind; both sides have them all, since tools read either direction."""


def read(kind: TopicKind, body: bytes) -> Message:
    """Read the body of a message whose signature has been verified.

    Raises:
        MessageRefusedError: Oversize, UnknownVersion or Malformed.
    """
    limit = RESULT_MAX_BYTES if kind in {TopicKind.RESULT, TopicKind.RESULT_BY_ID} else BODY_MAX_BYTES
    if len(body) > limit:
        raise MessageRefusedError(RefusalReason.OVERSIZE, f"{kind} with {len(body)} bytes, the limit is {limit}")
    message: Message = decode(READERS[kind], body)
    return message


def result_id(topic: Topic, message: Message) -> CommandId | None:
    """Return the command whose result a message is; None: it is no result, or it names no command."""
    if not isinstance(message, CommandResult | CommandNotTaken):
        return None
    return topic.id if isinstance(topic, ResultTopic) else message.id
