"""What became of operations on boxes, by what the boxes say."""

from collections.abc import Iterable, Mapping

from edgegpu_base.records import replace
from edgegpu_cloud.fleet.limits.report_words import report_words
from edgegpu_cloud.result_codes import reported
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationBox
from edgegpu_cloud.store.records import StoredCommand
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.states import CommandState


def settle_items(tx: Transaction, items: Mapping[DeviceId, Mapping[str, ItemReport]]) -> None:
    """Write the outcome of what is requested of boxes, after the items that they report."""
    rows = [row for row in tx.operations.stored_on(list(items)) if row.items]
    after = [_settled(row, items[row.device]) for row in rows]
    tx.operations.put([one for one in after if one.outcome is not BoxOutcome.STORED])


def _settled(row: OperationBox, items: Mapping[str, ItemReport]) -> OperationBox:
    ends = []
    for name, key in row.items.items():
        report = items.get(name)
        if report is None or (report.rev, report.retry) < key or report.state is ItemState.OPEN:
            return row
        if report.state is ItemState.PENDING and not row.force:
            return row
        ends.append(report)
    good = {ItemState.APPLIED, ItemState.ELSEWHERE, ItemState.PENDING}
    bad = next((one for one in ends if one.state not in good), None)
    if bad is None:
        return replace(row, outcome=BoxOutcome.APPLIED)
    text = reported(bad.state.value, bad.code, report_words(bad))
    return replace(row, outcome=BoxOutcome.REJECTED, text=text)


def settle_commands(tx: Transaction, commands: Iterable[StoredCommand]) -> None:
    """Write the outcome of what is requested of boxes by commands that have ended."""
    ended = {one.id: one.tracked for one in commands if one.tracked.ended}
    if not ended:
        return
    after = []
    for row in tx.operations.of_commands(list(ended)):
        one = ended[row.command] if row.command is not None else None
        if one is not None and one.state is CommandState.SUCCEEDED:
            after.append(replace(row, outcome=BoxOutcome.APPLIED))
        elif one is not None and one.state is not None:
            text = reported(one.state.value, one.code, one.text)
            after.append(replace(row, outcome=BoxOutcome.REJECTED, text=text))
    tx.operations.put(after)
