"""What a box has measured, as the store keeps it: samples of cards in their time, evidence of a command. No I/O."""

from collections.abc import Sequence

from pydantic import ValidationError

from edgegpu_cloud.store.records import StoredCommand
from edgegpu_cloud.store.telemetry.records import LATE_S, CardMoment, clock_shift_s
from edgegpu_sync.messages.evidence import ContainerEvidence, EvidenceReport
from edgegpu_sync.messages.telemetry import Metrics
from edgegpu_sync.states import CommandState

EVIDENCE = "evidence.check"
"""The op whose result is kept as evidence."""


def evidence_in(command: StoredCommand) -> Sequence[ContainerEvidence]:
    """Return the evidence in the result of a command; none where it is another op, or its data have another form."""
    if command.tracked.op != EVIDENCE or command.tracked.state is not CommandState.SUCCEEDED or command.data is None:
        return ()
    try:
        return EvidenceReport.model_validate(command.data, strict=False).containers
    except ValidationError:
        return ()


def moments_in(message: Metrics, *, now_s: float, live: bool) -> list[CardMoment]:
    """Return the samples of a message, by the controller's clock.

    The box's clock is taken as it is, unless it is plainly wrong: then the last sample counts as taken now, and where
    the message has waited for a connection (not `live`) its samples are left out, since nobody knows when that was.
    """
    shift_s = clock_shift_s(message, now_s)
    if shift_s and not live:
        return []
    return [
        CardMoment(sample.at + shift_s, card)
        for sample in message.samples
        if now_s - LATE_S <= sample.at + shift_s
        for card in sample.cards
    ]
