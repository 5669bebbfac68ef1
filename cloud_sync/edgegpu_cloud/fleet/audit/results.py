"""What came of audited changes, by what the store has now: settlements, ends of commands, operations, rollouts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.fleet.audit.entries import DONE, REFUSED
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.audit.reading import StoredChange
from edgegpu_cloud.fleet.audit.requests import request_outcomes
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState, RequestOutcome
from edgegpu_cloud.fleet.views import command_view
from edgegpu_cloud.phrases import Phrase, Verbatim, phrase, phrase_n
from edgegpu_cloud.result_codes import code_words
from edgegpu_cloud.store.operations.records import BoxOutcome
from edgegpu_cloud.store.records import StoredCommand
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutState
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import CommandId
from edgegpu_sync.states import CommandState


class ResultState(StrEnum):
    """What came of a change. Those of requests to boxes have the names that `OutcomeState` has for them."""

    DONE = "done"
    PARTLY = "partly"
    """Done on some boxes, and not on others."""
    REFUSED = "refused"
    """It was not allowed, and nothing was changed."""
    WAITING = "waiting"
    WORKING = "working"
    PAUSED = "paused"
    APPLIED = "applied"
    REJECTED = "rejected"
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"
    PENDING = "pending"
    UNSUPPORTED = "unsupported"
    ELSEWHERE = "elsewhere"
    DORMANT = "dormant"
    REPLACED = "replaced"
    EXPIRED = "expired"
    STOPPED = "stopped"
    ABORTED = "aborted"
    RETURNED = "returned"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """A command whose end nobody knows."""
    NOT_KNOWN = "not_known"
    """The store has dropped what would say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What came of a change. `text`: empty where the state says all. `at_s`: seconds since 1970, None if not known."""

    state: ResultState
    text: str = ""
    at_s: float | None = None


_DROPPED = AuditResult(state=ResultState.NOT_KNOWN)
_COMMANDS = frozenset({AuditKind.COMMAND, AuditKind.COMMAND_CANCELLED})
_OPERATIONS = frozenset({AuditKind.OPERATION, AuditKind.OPERATION_CANCELLED})
_ROLLOUTS = frozenset({AuditKind.ROLLOUT_STARTED, AuditKind.ROLLOUT_ABORTED})

_OF_COMMAND: Mapping[CommandState | None, ResultState] = {
    None: ResultState.WAITING,
    CommandState.RECEIVED: ResultState.WORKING,
    CommandState.ACCEPTED: ResultState.WORKING,
    CommandState.RUNNING: ResultState.WORKING,
    CommandState.VERIFYING: ResultState.WORKING,
    CommandState.SUCCEEDED: ResultState.DONE,
    CommandState.FAILED: ResultState.FAILED,
    CommandState.ROLLED_BACK: ResultState.ROLLED_BACK,
    CommandState.REJECTED: ResultState.REJECTED,
    CommandState.EXPIRED: ResultState.EXPIRED,
    CommandState.UNKNOWN: ResultState.UNKNOWN,
}
_OF_ROLLOUT: Mapping[RolloutState, ResultState] = {
    RolloutState.RUNNING: ResultState.WORKING,
    RolloutState.PAUSED: ResultState.PAUSED,
    RolloutState.STOPPING: ResultState.WORKING,
    RolloutState.ABORTING: ResultState.WORKING,
    RolloutState.RETURNING: ResultState.WORKING,
    RolloutState.DONE: ResultState.DONE,
    RolloutState.STOPPED: ResultState.STOPPED,
    RolloutState.ABORTED: ResultState.ABORTED,
    RolloutState.RETURNED: ResultState.RETURNED,
}


def results_of(tx: Transaction, changes: Sequence[StoredChange]) -> list[AuditResult]:
    """Return what came of each of these changes."""
    found = {one.entry.number: _stored(one) for one in changes}
    requests = [one for one in changes if one.entry.what == AuditKind.BOX_SPEC]
    found |= {number: _of_request(outcomes) for number, outcomes in request_outcomes(tx, requests).items()}
    found |= _of_commands(tx, [one for one in changes if one.entry.what in _COMMANDS])
    found |= _of_operations(tx, [one for one in changes if one.entry.what in _OPERATIONS])
    found |= _of_rollouts(tx, [one for one in changes if one.entry.what in _ROLLOUTS])
    return [found[one.entry.number] for one in changes]


def _stored(one: StoredChange) -> AuditResult:
    """Return the result of a change that was done, or refused, when it was stored."""
    state, _, text = one.result.partition(": ")
    if state == REFUSED:
        return AuditResult(state=ResultState.REFUSED, text=text, at_s=one.entry.at_s)
    if state not in {"", DONE}:
        return AuditResult(state=ResultState.NOT_KNOWN, text=one.result)
    return AuditResult(state=ResultState.DONE, at_s=one.entry.at_s)


_WORST_FIRST = (
    OutcomeState.FAILED,
    OutcomeState.REJECTED,
    OutcomeState.UNSUPPORTED,
    OutcomeState.DORMANT,
    OutcomeState.PENDING,
    OutcomeState.WORKING,
    OutcomeState.WAITING,
    OutcomeState.NOT_KNOWN,
    OutcomeState.REPLACED,
    OutcomeState.ELSEWHERE,
    OutcomeState.APPLIED,
)


def _of_request(outcomes: Mapping[str, RequestOutcome] | None) -> AuditResult:
    """Return what came of a revision: of its items that of the worst, with the item's name where there are several."""
    if outcomes is None:
        return _DROPPED
    if not outcomes:
        return AuditResult(state=ResultState.DONE)
    name = min(outcomes, key=lambda name: _WORST_FIRST.index(outcomes[name].state))
    one = outcomes[name]
    text = _told(one.code, one.text)
    if text and len(outcomes) > 1:
        text = phrase("%(state)s: %(words)s", state=name, words=text)
    return AuditResult(state=ResultState(one.state.value), text=text, at_s=one.at_s)


def _told(code: str, text: str) -> str:
    """Return a code with the box's words, or with the phrase that stands for them."""
    words = text if isinstance(text, Phrase) or not text else Verbatim(text)
    told = code_words(code)
    return phrase("%(state)s: %(words)s", state=told, words=words) if code and text else told or words


def _of_commands(tx: Transaction, changes: Sequence[StoredChange]) -> dict[int, AuditResult]:
    found = tx.commands.get({CommandId(id_) for id_ in _ids(changes, "id")})
    return {one.entry.number: _of_command(found.get(CommandId(str(one.detail.get("id"))))) for one in changes}


def _of_command(command: StoredCommand | None) -> AuditResult:
    if command is None:
        return _DROPPED
    view = command_view(command, box="", now_s=0.0)
    return AuditResult(state=_OF_COMMAND[view.state], text=_told(view.code, view.text), at_s=view.ended_at_s)


def _ids(changes: Iterable[StoredChange], key: str) -> set[str]:
    return {str(one.detail[key]) for one in changes if key in one.detail}


def _of_operations(tx: Transaction, changes: Sequence[StoredChange]) -> dict[int, AuditResult]:
    counts = tx.operations.counts(_ids(changes, "id"))
    return {one.entry.number: _of_operation(counts.get(str(one.detail.get("id")), {})) for one in changes}


def _of_operation(counts: Mapping[BoxOutcome, int]) -> AuditResult:
    if not counts:
        return _DROPPED
    applied, boxes = counts.get(BoxOutcome.APPLIED, 0), sum(counts.values())
    if counts.get(BoxOutcome.QUEUED) or counts.get(BoxOutcome.STORED):
        state = ResultState.WORKING
    elif applied == boxes:
        state = ResultState.DONE
    elif applied:
        state = ResultState.PARTLY
    else:
        state = ResultState.CANCELLED if counts.get(BoxOutcome.CANCELLED) == boxes else ResultState.REJECTED
    return AuditResult(state=state, text=_on_boxes(applied, boxes))


def _of_rollouts(tx: Transaction, changes: Sequence[StoredChange]) -> dict[int, AuditResult]:
    numbers = {number for one in changes if isinstance(number := one.detail.get("rollout"), int)}
    found = {number: _of_rollout(tx, number) for number in numbers}
    return {one.entry.number: found.get(one.detail.get("rollout", 0), _DROPPED) for one in changes}


def _of_rollout(tx: Transaction, number: int) -> AuditResult:
    rollout = tx.rollouts.get(number)
    if rollout is None:
        return _DROPPED
    waves = tx.rollouts.counts(number, rollout.waves, now_s=0.0)
    applied = sum(wave.of(RolloutBoxState.APPLIED) for wave in waves)
    text = _on_boxes(applied, sum(wave.total for wave in waves))
    return AuditResult(state=_OF_ROLLOUT[rollout.state], text=text)


def _on_boxes(applied: int, boxes: int) -> str:
    return phrase_n(
        "applied on %(applied)s of %(num)d box", "applied on %(applied)s of %(num)d boxes", boxes, applied=applied
    )
