"""The rules of a rollout: what follows each event of a box or a person, and what is to be done next; pure.

Nothing here knows a clock or a store. A rollout's state is in `RolloutRecord` and in the states of its boxes; the rules
decide by counts of these, so a process that finds them in the store decides as the one did that wrote them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, OfflinePolicy, RolloutStrategy
from edgegpu_cloud.store.rollouts.records import (
    RolloutBoxRecord,
    RolloutBoxState,
    RolloutRecord,
    RolloutState,
    WaveCounts,
)

B, R = RolloutBoxState, RolloutState

STATES = {
    R.RUNNING: phrase("RUNNING"),
    R.PAUSED: phrase("PAUSED"),
    R.STOPPING: phrase("STOPPING"),
    R.ABORTING: phrase("ABORTING"),
    R.RETURNING: phrase("RETURNING"),
    R.DONE: phrase("DONE"),
    R.STOPPED: phrase("STOPPED"),
    R.ABORTED: phrase("ABORTED"),
    R.RETURNED: phrase("RETURNED"),
}
"""The states as words of a sentence."""

OPEN = (B.QUEUED, B.CHANGING, B.RETRYING)
"""The states of boxes for which a wave's gate waits."""

BAD = (B.REJECTED, B.FAILED)


# what happens to a box


@dataclass(frozen=True, slots=True)
class BoxBegun:
    """The change was requested of the box; `changed` is false where everything stood so already."""

    text: str = ""
    changed: bool = True


@dataclass(frozen=True, slots=True)
class BoxApplied:
    """The box has applied the change."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class BoxRejected:
    """The box, or the controller before it, refuses the change."""

    text: str


@dataclass(frozen=True, slots=True)
class BoxFailed:
    """The box could not apply the change, did not end in time, or has lost the change while it was watched."""

    text: str


@dataclass(frozen=True, slots=True)
class BoxOffline:
    """The box is offline when its turn comes."""

    text: str


@dataclass(frozen=True, slots=True)
class BoxBack:
    """A box that was away is there again."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class BoxSkipped:
    """The rollout has to leave the box alone."""

    text: str


@dataclass(frozen=True, slots=True)
class BoxCancelled:
    """The rollout ends before the box's turn, or before its next try."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class BoxReturnBegun:
    """What the box had before was requested again."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class BoxReturned:
    """The box has what it had before."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class BoxNotReturned:
    """The box does not get back what it had before."""

    text: str


RolloutBoxEvent = (
    BoxBegun
    | BoxApplied
    | BoxRejected
    | BoxFailed
    | BoxOffline
    | BoxBack
    | BoxSkipped
    | BoxCancelled
    | BoxReturnBegun
    | BoxReturned
    | BoxNotReturned
)

_FROM: dict[type[RolloutBoxEvent], tuple[RolloutBoxState, ...]] = {
    BoxBegun: (B.QUEUED, B.RETRYING),
    BoxApplied: (B.CHANGING,),
    BoxRejected: (B.QUEUED, B.RETRYING, B.CHANGING, B.APPLIED),
    BoxFailed: (B.CHANGING, B.APPLIED),
    BoxOffline: (B.QUEUED,),
    BoxBack: (B.AWAY,),
    BoxSkipped: (B.QUEUED, B.AWAY, B.RETRYING, B.CHANGING, B.APPLIED),
    BoxCancelled: (B.QUEUED, B.AWAY, B.RETRYING),
    BoxReturnBegun: (B.APPLIED, B.REJECTED, B.FAILED),
    BoxReturned: (B.APPLIED, B.REJECTED, B.FAILED, B.RETURNING),
    BoxNotReturned: (B.APPLIED, B.REJECTED, B.FAILED, B.RETURNING),
}


_TO: dict[type[RolloutBoxEvent], RolloutBoxState] = {
    BoxBegun: B.CHANGING,
    BoxApplied: B.APPLIED,
    BoxBack: B.QUEUED,
    BoxSkipped: B.SKIPPED,
    BoxReturnBegun: B.RETURNING,
    BoxReturned: B.RETURNED,
    BoxNotReturned: B.NOT_RETURNED,
}


def after_box_event(
    box: RolloutBoxRecord, event: RolloutBoxEvent, strategy: RolloutStrategy, *, now_s: float
) -> RolloutBoxRecord:
    """Return a box after an event.

    Raises:
        ValueError: the event cannot happen to a box in this state.
    """
    if box.state not in _FROM[type(event)]:
        raise ValueError(f"{type(event).__name__} does not follow {box.state} of {box.device}")
    begun = isinstance(event, BoxBegun)
    after = replace(
        box,
        state=_next_state(box, event, strategy),
        message=box.message if isinstance(event, BoxCancelled | BoxReturnBegun | BoxReturned) else event.text,
        next_try_at_s=None,
        since_s=now_s,
        attempts=box.attempts + begun,
        changed=box.changed or (isinstance(event, BoxBegun) and event.changed),
    )
    return replace(after, next_try_at_s=now_s + strategy.retry_after_s) if after.state is B.RETRYING else after


def _next_state(box: RolloutBoxRecord, event: RolloutBoxEvent, strategy: RolloutStrategy) -> RolloutBoxState:
    match event:
        case BoxRejected() | BoxFailed():
            if box.state is B.CHANGING and box.attempts <= strategy.retries:
                return B.RETRYING
            return B.REJECTED if isinstance(event, BoxRejected) else B.FAILED
        case BoxOffline():
            return B.AWAY if strategy.offline is OfflinePolicy.JOIN else B.SKIPPED
        case BoxCancelled():
            return B.FAILED if box.state is B.RETRYING else B.CANCELLED
        case _:
            return _TO[type(event)]


# what people do


def paused(rollout: RolloutRecord, by: str) -> RolloutRecord:
    """Return the rollout paused by a person; ValueError where it does not run."""
    if rollout.state is not R.RUNNING:
        raise ValueError(phrase("it is %(state)s, not %(other)s", state=STATES[rollout.state], other=STATES[R.RUNNING]))
    return replace(rollout, state=R.PAUSED, held=False, reason=phrase("paused by %(by)s", by=by))


def resumed(rollout: RolloutRecord) -> RolloutRecord:
    """Return the rollout running again; ValueError where it is not paused.

    Where a gate holds it, that gate does not count any more: a person has looked, and goes on.
    """
    if rollout.state is not R.PAUSED:
        raise ValueError(phrase("it is %(state)s, not %(other)s", state=STATES[rollout.state], other=STATES[R.PAUSED]))
    waived = max(rollout.waived, rollout.wave + 1) if rollout.held else rollout.waived
    return replace(rollout, state=R.RUNNING, held=False, waived=waived, reason="")


def aborted(rollout: RolloutRecord, by: str, *, returns: bool) -> RolloutRecord:
    """Return the rollout aborted by a person: nothing new is begun, boxes that are at it end; ValueError at its end.

    A rollout that stops already may be told to return its boxes, and so may one that has ended and left its boxes
    changed; one that returns them is not stopped in that.
    """
    if returns and rollout.state.undoable:
        reason = phrase("taken back by %(by)s", by=by)
        return replace(rollout, state=R.RETURNING, returns=True, ended_at_s=None, reason=reason)
    if rollout.state.ended or rollout.state is R.RETURNING:
        raise ValueError(phrase("it is %(state)s", state=STATES[rollout.state]))
    reason = phrase("aborted by %(by)s", by=by)
    return replace(rollout, state=R.ABORTING, held=False, returns=rollout.returns or returns, reason=reason)


# what is done next


@dataclass(frozen=True, slots=True)
class BeginBoxes:
    """Begin so many queued boxes of a wave."""

    wave: int
    number: int


@dataclass(frozen=True, slots=True)
class RetryBoxes:
    """Begin so many boxes again whose next try is due."""

    number: int


@dataclass(frozen=True, slots=True)
class CancelBoxes:
    """Cancel all boxes that are queued, away, or wait for their next try."""


@dataclass(frozen=True, slots=True)
class ReturnBoxes:
    """Give so many changed boxes back what they had."""

    number: int


RolloutAction = BeginBoxes | RetryBoxes | CancelBoxes | ReturnBoxes


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """The rollout as it is to be written, and what is to be done now; no action: it waits.

    `until_s`: the time up to which a gate's soak lasts.
    """

    rollout: RolloutRecord
    actions: tuple[RolloutAction, ...] = ()
    until_s: float | None = None


def decide(
    rollout: RolloutRecord, strategy: RolloutStrategy, waves: Sequence[WaveCounts], *, now_s: float
) -> RolloutDecision:
    """Decide what is to be done next.

    Args:
        rollout: as it is in the store.
        strategy: of the rollout.
        waves: the counts of each wave, as they are in the store.
        now_s: seconds since 1970.
    """
    match rollout.state:
        case R.RUNNING:
            return _run(rollout, strategy, waves, now_s)
        case R.PAUSED | R.DONE | R.STOPPED | R.ABORTED | R.RETURNED:
            return RolloutDecision(rollout)
        case R.STOPPING | R.ABORTING:
            return _stop(rollout, waves, now_s)
        case R.RETURNING:
            return _return(rollout, strategy, waves, now_s)
        case _:
            assert_never(rollout.state)


def _sum(waves: Sequence[WaveCounts], *states: RolloutBoxState) -> int:
    return sum(wave.of(*states) for wave in waves)


def _room(strategy: RolloutStrategy, under_way: int) -> int:
    """Return how many more boxes may be changed now."""
    return max(0, strategy.max_unavailable - under_way) if strategy.max_unavailable else 1_000_000


def _run(
    rollout: RolloutRecord, strategy: RolloutStrategy, waves: Sequence[WaveCounts], now_s: float
) -> RolloutDecision:
    for number, counts in enumerate(waves[: rollout.wave + 1]):
        if number >= rollout.waived and (why := failed_gate(counts, strategy.gate)):
            return RolloutDecision(_failed(rollout, strategy, _of_wave(number, strategy, why)))
    if rollout.wave < len(waves) and not waves[rollout.wave].of(*OPEN):
        return _at_gate(rollout, strategy, waves, now_s)
    if rollout.wave == len(waves) and not _sum(waves, *OPEN, B.AWAY):
        return RolloutDecision(replace(rollout, state=R.DONE, ended_at_s=now_s, reason=""))
    return _begin(rollout, strategy, waves, None)


def _at_gate(
    rollout: RolloutRecord, strategy: RolloutStrategy, waves: Sequence[WaveCounts], now_s: float
) -> RolloutDecision:
    """Decide about the next wave when all boxes of the present one have ended, or are away."""
    counts, gate = waves[rollout.wave], strategy.gate
    if rollout.wave >= rollout.waived:
        if why := _too_few(counts, gate):
            if counts.of(B.AWAY):
                return _begin(rollout, strategy, waves, None)
            reason = _resumable(_of_wave(rollout.wave, strategy, why))
            return RolloutDecision(replace(rollout, state=R.PAUSED, held=True, reason=reason))
        until_s = counts.ended_s + gate.soak_s
        if now_s < until_s:
            return _begin(rollout, strategy, waves, until_s)
    return RolloutDecision(replace(rollout, wave=rollout.wave + 1))  # who of the next wave is there is looked at first


def _begin(
    rollout: RolloutRecord, strategy: RolloutStrategy, waves: Sequence[WaveCounts], until_s: float | None
) -> RolloutDecision:
    """Return the boxes to begin: retries, boxes of earlier waves that were away, then those of the present wave."""
    room = _room(strategy, _sum(waves, B.CHANGING))
    actions: list[RolloutAction] = []
    if number := min(room, sum(wave.due for wave in waves)):
        actions.append(RetryBoxes(number))
        room -= number
    for wave, counts in enumerate(waves[: rollout.wave + 1]):
        if number := min(room, counts.of(B.QUEUED)):
            actions.append(BeginBoxes(wave, number))
            room -= number
    return RolloutDecision(rollout, tuple(actions), until_s)


def failed_gate(counts: WaveCounts, gate: Gate) -> str:
    """Return why a wave can never pass its gate, whatever its other boxes do; empty where it can."""
    bad = counts.of(*BAD)
    best = counts.total - bad - counts.of(B.SKIPPED, B.CANCELLED)
    if not bad or best * 100 >= gate.success_percent * (best + bad):
        return ""
    return phrase(
        "%(bad)s of %(total)s boxes failed, and %(percent)s %% have to succeed",
        bad=bad,
        total=counts.total,
        percent=gate.success_percent,
    )


def _too_few(counts: WaveCounts, gate: Gate) -> str:
    """Return why a wave whose boxes have ended has too few successes; empty where it has enough."""
    applied, needed = counts.of(B.APPLIED), min(gate.minimum, counts.total)
    if applied >= needed:
        return ""
    return phrase(
        "%(applied)s of %(total)s boxes succeeded, and %(needed)s have to",
        applied=applied,
        total=counts.total,
        needed=needed,
    )


def wave_name(wave: int, strategy: RolloutStrategy) -> str:
    """Return the name of a wave for people: the canary, or wave 1 and so on."""
    if strategy.canary and wave == 0:
        return phrase("canary")
    return phrase("wave %(num)s", num=wave if strategy.canary else wave + 1)


def _of_wave(wave: int, strategy: RolloutStrategy, why: str) -> str:
    return phrase("%(wave)s: %(why)s", wave=wave_name(wave, strategy), why=why)


def _resumable(why: str) -> str:
    return phrase("%(why)s; `resume` goes on all the same", why=why)


def _failed(rollout: RolloutRecord, strategy: RolloutStrategy, reason: str) -> RolloutRecord:
    match strategy.on_failure:
        case FailurePolicy.PAUSE:
            return replace(rollout, state=R.PAUSED, held=True, reason=_resumable(reason))
        case FailurePolicy.STOP | FailurePolicy.RETURN as policy:
            return replace(rollout, state=R.STOPPING, returns=policy is FailurePolicy.RETURN, reason=reason)
        case _:
            assert_never(strategy.on_failure)


def _stop(rollout: RolloutRecord, waves: Sequence[WaveCounts], now_s: float) -> RolloutDecision:
    if _sum(waves, B.QUEUED, B.AWAY, B.RETRYING):
        return RolloutDecision(rollout, (CancelBoxes(),))
    if _sum(waves, B.CHANGING):
        return RolloutDecision(rollout)
    if rollout.returns:
        return RolloutDecision(replace(rollout, state=R.RETURNING))
    end = R.STOPPED if rollout.state is R.STOPPING else R.ABORTED
    return RolloutDecision(replace(rollout, state=end, ended_at_s=now_s))


def _return(
    rollout: RolloutRecord, strategy: RolloutStrategy, waves: Sequence[WaveCounts], now_s: float
) -> RolloutDecision:
    left, under_way = sum(wave.returnable for wave in waves), _sum(waves, B.RETURNING)
    if number := min(left, _room(strategy, under_way)):
        return RolloutDecision(rollout, (ReturnBoxes(number),))
    if left or under_way:
        return RolloutDecision(rollout)
    return RolloutDecision(replace(rollout, state=R.RETURNED, ended_at_s=now_s))
