"""What `nvidia-smi -L` prints in containers, as the result of `evidence.check` has it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, assert_never

from pydantic import Field

from edgegpu_sync.messages.telemetry import Uid
from edgegpu_sync.wire import Count, Line, Name, Text, Token, WireModel

MOST_CARDS = 64
"""Cards that one container can hold or see in a report."""


class SeenCards(StrEnum):
    """What a container sees against the cards that kubelet gave it."""

    OWN = "own"
    """Exactly its cards."""
    MORE = "more"
    """Its cards and others."""
    OTHER = "other"
    """Not all of its cards, or others in their place."""
    NONE = "none"
    """No card."""
    UNKNOWN = "unknown"
    """It could not be asked; the text says why."""


class ContainerEvidence(WireModel):
    """One container: `held` are its cards by kubelet's record, `seen` those that nvidia-smi lists in it.

    `lines` is what nvidia-smi printed, or its beginning. A container's author chooses what is printed there.
    """

    uid: Uid
    namespace: Name
    pod: Name
    container: Name
    verdict: SeenCards
    held: Annotated[tuple[Token, ...], Field(max_length=MOST_CARDS)] = ()
    seen: Annotated[tuple[Token, ...], Field(max_length=MOST_CARDS)] = ()
    lines: Text = ""
    text: Line = ""


class EvidenceReport(WireModel):
    """The result of `evidence.check`; `left_out` counts containers for which the result had no room."""

    containers: Annotated[tuple[ContainerEvidence, ...], Field(max_length=256)]
    left_out: Count = 0


def words_of(verdict: SeenCards, *, held: Sequence[str], seen: Sequence[str], text: str) -> str:
    """Return what a container sees as words: "sees exactly its card". The arguments are those of its evidence."""
    its, others = _cards(held), _cards(seen)
    match verdict:
        case SeenCards.OWN:
            return "sees exactly its card" if len(held) == 1 else f"sees exactly its {its}"
        case SeenCards.MORE:
            return f"sees {others}, holds {its}"
        case SeenCards.OTHER:
            return f"sees {others}, not the {its} that it holds"
        case SeenCards.NONE:
            return f"sees no card, holds {its}"
        case SeenCards.UNKNOWN:
            return f"could not be asked: {text}"
        case _:
            assert_never(verdict)


def _cards(found: Sequence[str]) -> str:
    return "1 card" if len(found) == 1 else f"{len(found)} cards"
