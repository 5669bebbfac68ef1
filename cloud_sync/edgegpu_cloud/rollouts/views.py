"""Views of rollouts for people, made of the store's records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgegpu_cloud.rollouts.changes import RolloutKind, read_change, words_of
from edgegpu_cloud.rollouts.rules import decide, wave_name
from edgegpu_cloud.rollouts.strategy import RolloutStrategy, read_strategy
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutRecord, RolloutState, WaveCounts
from edgegpu_cloud.store.store import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveView:
    """A wave: its name, how many boxes it has, and how many of them are in which state."""

    number: int
    name: str
    boxes: int
    states: Mapping[RolloutBoxState, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutView:
    """A rollout: what it changes, how, and where it stands. Times are seconds since 1970.

    `words` is the change for people. `wave` is the number of the wave that is being changed, from 0; it is the number
    of waves when all gates are passed. `soaks_until_s`: the end of the time in which the gate of that wave watches it.
    """

    number: int
    kind: str
    words: str
    change: Mapping[str, Any]
    strategy: RolloutStrategy
    by: str
    at_s: float
    state: RolloutState
    reason: str
    held: bool
    returns: bool
    wave: int
    waves: Sequence[WaveView]
    boxes: int
    states: Mapping[RolloutBoxState, int]
    soaks_until_s: float | None
    ended_at_s: float | None

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.state.ended

    @property
    def undoable(self) -> bool:
        """Whether its boxes can still be given back what they had: they take no older version of the agent."""
        return self.state.undoable and self.kind != RolloutKind.UPGRADE

    @property
    def done_boxes(self) -> int:
        """How many boxes have ended, well or not."""
        return self.boxes - sum(self.states.get(state, 0) for state in _UNDER_WAY)

    @property
    def failures(self) -> int:
        """How many boxes have refused the change or failed at it, and have not got back what they had."""
        return sum(self.states.get(state, 0) for state in (RolloutBoxState.FAILED, RolloutBoxState.REJECTED))


_UNDER_WAY = (
    RolloutBoxState.QUEUED,
    RolloutBoxState.AWAY,
    RolloutBoxState.CHANGING,
    RolloutBoxState.RETRYING,
    RolloutBoxState.RETURNING,
)


def rollout_view(tx: Transaction, rollout: RolloutRecord, *, now_s: float) -> RolloutView:
    """Return the view of a rollout as it is now."""
    strategy = read_strategy(rollout.strategy)
    counts = tx.rollouts.counts(rollout.number, rollout.waves, now_s)
    states: dict[RolloutBoxState, int] = {}
    for wave in counts:
        for state, number in wave.states.items():
            states[state] = states.get(state, 0) + number
    return RolloutView(
        number=rollout.number,
        kind=rollout.kind,
        words=words_of(read_change(rollout.kind, rollout.change)),
        change=rollout.change,
        strategy=strategy,
        by=rollout.by,
        at_s=rollout.at_s,
        state=rollout.state,
        reason=rollout.reason,
        held=rollout.held,
        returns=rollout.returns,
        wave=rollout.wave,
        waves=[_wave_view(number, wave, strategy) for number, wave in enumerate(counts)],
        boxes=sum(states.values()),
        states=states,
        soaks_until_s=decide(rollout, strategy, counts, now_s=now_s).until_s,
        ended_at_s=rollout.ended_at_s,
    )


def _wave_view(number: int, counts: WaveCounts, strategy: RolloutStrategy) -> WaveView:
    return WaveView(number=number, name=wave_name(number, strategy), boxes=counts.total, states=counts.states)
