"""What was done on a box: its commands with their steps, its last findings, and the last changes of its machine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.limits.outcomes import RequestOutcome, outcome_of_settlement
from edgegpu_cloud.fleet.views import CommandTimeline, CommandView, command_view
from edgegpu_cloud.store.records import BoxRecord
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import SINGLE_ITEMS
from edgegpu_sync.messages.telemetry import CLOUD, TransactionReport

_CHANGES = 10
_TRANSACTIONS = 100
"""Reports that are looked at: those of requests that are shown as settled are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A change of a box's machine by its installer: a requested setting with its outcome, or a transaction.

    `item`, `rev`: the setting and the revision that asked for it, or empty and 0. `by`: who has requested it here;
    empty for a change that began on the box, and where the request is not kept any more. `at_s`: when the controller
    heard how it ended. `outcome`: of a setting; `transaction`: of any other change, as the box has reported it.
    """

    item: str
    rev: int
    by: str
    at_s: float
    outcome: RequestOutcome | None = None
    transaction: TransactionReport | None = None


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
        changes=machine_changes(tx, box),
    )


def _doctor(tx: Transaction, box: BoxRecord, now_s: float) -> CommandView | None:
    found = tx.commands.last_with_data(box.device, "doctor.run")
    return None if found is None else command_view(found, box=box.name, now_s=now_s)


def machine_changes(tx: Transaction, box: BoxRecord) -> list[MachineChange]:
    """Return the last changes of a machine, newest first; each once, also where the box has reported it in two ways."""
    authors = {one.rev: one.by for one in tx.boxes.revisions(box.device)}
    settled = [one for one in tx.settlements.of(box.device).by_key.values() if one.key.item in SINGLE_ITEMS]
    newest = sorted(settled, key=lambda one: (one.at_s, one.key), reverse=True)[:_CHANGES]
    settings = [
        MachineChange(
            item=one.key.item,
            rev=one.key.rev,
            by=authors.get(one.key.rev, ""),
            at_s=one.at_s,
            outcome=outcome_of_settlement(one),
        )
        for one in newest
    ]
    reported = _reported(tx, box, authors, shown={(one.key.item, one.key.rev) for one in settled})
    return sorted([*reported, *settings], key=lambda one: one.at_s, reverse=True)[:_CHANGES]


def _reported(
    tx: Transaction, box: BoxRecord, authors: Mapping[int, str], *, shown: Collection[tuple[str, int]]
) -> list[MachineChange]:
    """Return the transactions that the box has reported, newest first, less those of settlements that are `shown`."""
    events = tx.notes.events(box.device, limit=_TRANSACTIONS, transactions=True)
    told = [(one.at_s, TransactionReport.model_validate(one.transaction)) for one in events if one.transaction]
    ids = {CommandId(report.id) for _, report in told}
    commands = {id_: one.by for id_, one in tx.commands.get(ids).items() if one.device == box.device} if ids else {}
    changes = []
    for at_s, report in told:
        if report.item and (report.item, report.rev) in shown:
            continue
        by = authors.get(report.rev, "") if report.item else commands.get(CommandId(report.id), "")
        # a box that has lost its journal does not know its commands any more
        known = report.model_copy(update={"author": CLOUD}) if by else report
        changes.append(MachineChange(item=report.item, rev=report.rev, by=by, at_s=at_s, transaction=known))
    return changes
