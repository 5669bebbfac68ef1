"""Why an alarm that a rollout has raised is over: the rollout goes on, or has ended."""

from collections.abc import Mapping

from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.rollouts.records import ROLLOUT_ALARMS, RolloutRecord, RolloutState
from edgegpu_cloud.store.store import Transaction


def rollout_of(alarm_kind: str) -> int | None:
    """Return the rollout that has raised an alarm of this kind; None where none has."""
    kind, _, number = alarm_kind.partition("/")
    return int(number) if kind in ROLLOUT_ALARMS and number.isascii() and number.isdecimal() else None


def over_reason(tx: Transaction, number: int) -> str:
    """Return why the alarms of a rollout are over; empty while what they say stands.

    One that a gate has stopped has left its boxes half changed: that stands until it is taken back, or a later rollout
    of the same has ended well.
    """
    rollout = tx.rollouts.get(number)
    if rollout is None:
        return phrase("rollout %(number)s is not kept any more", number=number)
    if rollout.state is RolloutState.STOPPED:
        return _replaced(tx, rollout)
    return _reasons(number).get(rollout.state, "")


def _reasons(number: int) -> Mapping[RolloutState, str]:
    return {
        RolloutState.RUNNING: phrase("rollout %(number)s goes on", number=number),
        RolloutState.DONE: phrase("rollout %(number)s is done", number=number),
        RolloutState.ABORTED: phrase("rollout %(number)s was aborted", number=number),
        RolloutState.RETURNED: phrase("rollout %(number)s was taken back", number=number),
    }


def _replaced(tx: Transaction, rollout: RolloutRecord) -> str:
    later = tx.rollouts.done_since(rollout.number, rollout.subject)
    return "" if later is None else phrase("rollout %(number)s has changed the same since", number=later)
