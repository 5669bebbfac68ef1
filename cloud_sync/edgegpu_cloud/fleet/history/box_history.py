"""What was done on a box: its commands with their steps, its last findings, and the last changes of its machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.limits.outcomes import RequestOutcome, outcome_of_settlement
from edgegpu_cloud.fleet.views import CommandTimeline, CommandView, command_view
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.messages.spec import SINGLE_ITEMS

_CHANGES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A setting of a box's sharing that its installer has settled: `item` is its name, `by` who has requested it.

    `by` is empty where the document that asked for it is not kept any more.
    """

    item: str
    rev: int
    by: str
    outcome: RequestOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxHistory:
    """A page of a box's commands, newest first, and what was found and changed on it last.

    `older`: the id before which the next page begins; empty on the last one. `doctor`: the last run of the doctor that
    has ended well.
    """

    commands: Sequence[CommandTimeline]
    older: str
    doctor: CommandView | None
    changes: Sequence[MachineChange]


def box_history(tx: Transaction, box: BoxRecord, *, before: str, limit: int, now_s: float) -> BoxHistory:
    """Return a page of a box's commands, of `limit` at most, and its last findings and changes."""
    found = tx.commands.of(box.device, limit=limit + 1, before=before)
    shown = found[:limit]
    lines = tx.commands.histories([one.id for one in shown])
    commands = [
        CommandTimeline(
            command_view(one, box=box.name, now_s=now_s, history=lines.get(one.id, ())),
            None if one.tracked.ended else one.next_at_s,
        )
        for one in shown
    ]
    return BoxHistory(
        commands=commands,
        older=shown[-1].id if len(found) > limit else "",
        doctor=_doctor(tx, box, now_s),
        changes=_changes(tx, box),
    )


def _doctor(tx: Transaction, box: BoxRecord, now_s: float) -> CommandView | None:
    found = tx.commands.last_with_data(box.device, "doctor.run")
    return None if found is None else command_view(found, box=box.name, now_s=now_s)


def _changes(tx: Transaction, box: BoxRecord) -> list[MachineChange]:
    authors = {one.rev: one.by for one in tx.boxes.revisions(box.device)}
    settled = [one for one in tx.settlements.of(box.device).by_key.values() if one.key.item in SINGLE_ITEMS]
    newest = sorted(settled, key=lambda one: (one.at_s, one.key), reverse=True)[:_CHANGES]
    return [
        MachineChange(
            item=one.key.item, rev=one.key.rev, by=authors.get(one.key.rev, ""), outcome=outcome_of_settlement(one)
        )
        for one in newest
    ]
