"""The dataclasses of rollouts that the store takes and returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from edgegpu_sync.ids import CommandId, DeviceId

Json = dict[str, Any]

STOPPED_ALARM, ERROR_ALARM = "rollout.STOPPED", "rollout.ERROR"
ROLLOUT_ALARMS = frozenset({STOPPED_ALARM, ERROR_ALARM})
"""The kinds of a rollout's alarms; each has the rollout's number behind a slash, for one ends with its rollout."""

BAD_HEALTH = "bad"
"""The health of a box that is not well, as it reports it."""


class RolloutState(StrEnum):
    """Where a rollout stands. The last four are ends."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    """A gate was failed: nothing new is begun, and boxes that are at it end."""
    ABORTING = "ABORTING"
    """A person has aborted it: as STOPPING."""
    RETURNING = "RETURNING"
    DONE = "DONE"
    STOPPED = "STOPPED"
    ABORTED = "ABORTED"
    RETURNED = "RETURNED"

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self in _ENDS

    @property
    def undoable(self) -> bool:
        """Whether it has ended and left its boxes changed."""
        return self.ended and self is not RolloutState.RETURNED


_ENDS = frozenset({RolloutState.DONE, RolloutState.STOPPED, RolloutState.ABORTED, RolloutState.RETURNED})


class RolloutBoxState(StrEnum):
    """Where a box stands in a rollout."""

    QUEUED = "QUEUED"
    AWAY = "AWAY"
    """Its turn came while it was offline: it joins when it is back."""
    CHANGING = "CHANGING"
    RETRYING = "RETRYING"
    """A try has failed, and there is another."""
    APPLIED = "APPLIED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    """The rollout leaves it alone: offline too long, revoked, or changed by somebody else meanwhile."""
    CANCELLED = "CANCELLED"
    """The rollout ended before its turn."""
    RETURNING = "RETURNING"
    RETURNED = "RETURNED"
    NOT_RETURNED = "NOT_RETURNED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """A rollout in the store; times in seconds since 1970.

    `kind` and `change` say what is set, `strategy` how. `subject` is the same for two rollouts that change the same
    thing. `wave` is the wave that is being changed; it is `waves` when all gates are passed. `waived` counts the waves
    whose gates do not matter, because a person has resumed beyond them. `held`: it is paused by a gate, not by a
    person. `returns`: when it has stopped, changed boxes get back what they had. `seen_change`: the number of the last
    change by a person when this one saw what there was; None: an earlier version has started it.
    """

    number: int = 0
    kind: str
    subject: str
    change: Json
    strategy: Json
    by: str
    at_s: float
    waves: int
    state: RolloutState = RolloutState.RUNNING
    wave: int = 0
    waived: int = 0
    held: bool = False
    returns: bool = False
    reason: str = ""
    ended_at_s: float | None = None
    seen_change: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFilter:
    """The rollouts that are asked for; fields that are empty or None do not count.

    `search` is looked for in people and in what is changed, in small and capital letters, or is a number. `kind`: what
    is changed, as in `RolloutRecord`.
    """

    search: str = ""
    kind: str = ""
    state: RolloutState | None = None


EVERY_ROLLOUT = RolloutFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBoxRecord:
    """A box of a rollout; `position` is its place in the order of the rollout, from 0.

    `since_s`: when it came into its state. `changed`: the rollout has asked something of it. `rev` and `wrote` are the
    revision and the items that it has written, `before` what there was; `command` is the command of an upgrade.
    `others` are the devices of the same cluster. `checked_s`: the report up to which an applied box was checked.
    """

    rollout: int = 0
    device: DeviceId
    name: str
    position: int
    wave: int
    state: RolloutBoxState = RolloutBoxState.QUEUED
    attempts: int = 0
    message: str = ""
    next_try_at_s: float | None = None
    since_s: float = 0.0
    changed: bool = False
    rev: int = 0
    command: CommandId | None = None
    before: Json | None = None
    wrote: Json | None = None
    others: tuple[DeviceId, ...] = ()
    checked_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveCounts:
    """How many boxes of a wave are in which state.

    `due`: boxes that are RETRYING and whose next try is due. `returnable`: boxes that the rollout has changed and that
    have ended. `ended_s`: when the last of those that have ended did so; 0 where none has.
    """

    states: Mapping[RolloutBoxState, int] = field(default_factory=dict)
    due: int = 0
    returnable: int = 0
    ended_s: float = 0.0

    def of(self, *states: RolloutBoxState) -> int:
        """Return how many boxes are in one of these states."""
        return sum(self.states.get(state, 0) for state in states)

    @property
    def total(self) -> int:
        """The number of boxes in the wave."""
        return sum(self.states.values())
