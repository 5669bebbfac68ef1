"""The messages that a controller sends, before they are signed. Imports no I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgegpu_cloud.store.records import BoxRecord, Json, StoredCommand
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.downlink import Command, Desired, Keys, KeySetLink, Receipt, RefreshRequest
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.signing import Signer, bare
from edgegpu_sync.topics import CommandTopic, PlainTopic, Topic, TopicKind
from edgegpu_sync.wire import clipped, encode

MOST_RESULTS = 500
"""Results in one receipt: fewer than it may name, so that it stays far below 64 KiB."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A body with its topic, before it is signed."""

    topic: Topic
    body: bytes

    def seal(self, signer: Signer) -> bytes:
        """Return the payload, signed unless it is for `down/keys`.

        Raises:
            TooLargeError: more than 64 KiB.
        """
        return bare(self.body) if self.topic.kind is TopicKind.KEYS else signer.seal(self.topic, self.body)


def keys_message(device: DeviceId, chain: Sequence[KeySetLink]) -> OutgoingMessage:
    """Return the message with a chain of controllers' keys, which has one link at least."""
    return OutgoingMessage(PlainTopic(device, TopicKind.KEYS), encode(Keys(chain=tuple(chain))))


def desired_message(box: BoxRecord, spec: Json) -> OutgoingMessage:
    """Return the message with a box's desired document."""
    body = Desired(enrolment=box.sequence.enrolment, rev=box.sequence.rev, spec=spec)
    return OutgoingMessage(PlainTopic(box.device, TopicKind.DESIRED), encode(body))


def command_message(command: StoredCommand, body: Command) -> OutgoingMessage:
    """Return the message with a command whose body is for the present birth."""
    whole = body.model_copy(update={"by": clipped(command.by, 253), "at": int(command.at_s)})
    return OutgoingMessage(CommandTopic(command.device, command.tracked.op, command.id), encode(whole))


def receipt_messages(
    box: BoxRecord,
    *,
    upto: Stamp,
    server_time: int,
    results: Sequence[CommandId] = (),
    ask: Iterable[RefreshRequest] = (),
    spread: bool = False,
) -> list[OutgoingMessage]:
    """Return receipts for what is stored, with questions to the box; several where the results do not fit into one.

    Args:
        box: whose results they are.
        upto: events with a stamp up to this one are stored.
        server_time: seconds since 1970, never less than before.
        results: ids whose terminal state is stored.
        ask: what the box shall send at once.
        spread: it is one of many receipts, so the box answers with a delay.
    """
    parts = [tuple(results[at : at + MOST_RESULTS]) for at in range(0, len(results), MOST_RESULTS)] or [()]
    wanted = tuple(sorted(want.value for want in ask))
    bodies = (
        Receipt(
            enrolment=box.sequence.enrolment,
            epoch=upto.epoch,
            n=upto.n,
            results=part,
            rev=box.sequence.rev,
            server_time=server_time,
            ask=wanted,
            spread=spread,
            one_result_topic=True,
        )
        for part in parts
    )
    return [OutgoingMessage(PlainTopic(box.device, TopicKind.RECEIPT), encode(body)) for body in bodies]
