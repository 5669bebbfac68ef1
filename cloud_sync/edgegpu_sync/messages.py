"""Which body stands under which topic, and how one is read."""

from typing import Any

from pydantic import TypeAdapter

from edgegpu_sync.down import Command, Desired, Keys, Receipt
from edgegpu_sync.errors import RefusedError, Why
from edgegpu_sync.telemetry import Alloc, Event, Health, Inventory, Metrics
from edgegpu_sync.topics import Kind
from edgegpu_sync.up import Answer, Birth, Bye, NotTaken, Reported, Result, Status, Will
from edgegpu_sync.wire import BODY_MAX_BYTES, RESULT_MAX_BYTES, decode

Message = (
    Desired
    | Command
    | Receipt
    | Keys
    | Birth
    | Will
    | Bye
    | Reported
    | Result
    | NotTaken
    | Inventory
    | Alloc
    | Health
    | Event
    | Metrics
)

READERS: dict[Kind, TypeAdapter[Any]] = {
    Kind.DESIRED: TypeAdapter(Desired),
    Kind.COMMAND: TypeAdapter(Command),
    Kind.RECEIPT: TypeAdapter(Receipt),
    Kind.KEYS: TypeAdapter(Keys),
    Kind.STATUS: TypeAdapter(Status),
    Kind.REPORTED: TypeAdapter(Reported),
    Kind.RESULT: TypeAdapter(Answer),
    Kind.INVENTORY: TypeAdapter(Inventory),
    Kind.ALLOC: TypeAdapter(Alloc),
    Kind.HEALTH: TypeAdapter(Health),
    Kind.EVENT: TypeAdapter(Event),
    Kind.METRICS: TypeAdapter(Metrics),
}
"""One reader for each kind; both sides have them all, since tools read either direction."""


def read(kind: Kind, body: bytes) -> Message:
    """Read the body of a message whose signature has been verified.

    Raises:
        RefusedError: Oversize, UnknownVersion or Malformed.
    """
    limit = RESULT_MAX_BYTES if kind is Kind.RESULT else BODY_MAX_BYTES
    if len(body) > limit:
        raise RefusedError(Why.OVERSIZE, f"{kind} with {len(body)} bytes, the limit is {limit}")
    message: Message = decode(READERS[kind], body)
    return message
