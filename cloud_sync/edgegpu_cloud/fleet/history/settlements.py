"""When and how boxes have settled what was requested of them, by what they report."""

from collections.abc import Mapping
from dataclasses import replace

from edgegpu_cloud.store.settlements.records import RequestKey, StoredSettlement
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.uplink import ItemReport, ItemState


def record_settlements(
    tx: Transaction,
    items: Mapping[DeviceId, Mapping[str, ItemReport]],
    enrolments: Mapping[DeviceId, int],
    *,
    now_s: float,
) -> None:
    """Store what boxes have settled since their reports before; call it where the reports are stored.

    A report names every item each time, so the moment is that of the first report which the controller has stored of
    it: a box that was not connected settles earlier than that.

    Args:
        tx: a transaction that writes.
        items: the items that boxes report, by name.
        enrolments: under which each of them reports.
        now_s: seconds since 1970.
    """
    found = {device: _settlements(of, enrolments[device], now_s) for device, of in items.items()}
    held = tx.settlements.held(found)
    fresh, changed, opened = [], [], []
    for device, settlements in found.items():
        for key, one in settlements.items():
            before = held.get(device, {}).get(key)
            if one.state is ItemState.OPEN:
                opened += [(device, key)] if before is not None else []
            elif before is None:
                fresh.append((device, one))
            elif not one.is_same_end(before):
                changed.append((device, one))
            elif one.text and one.text != before.text:
                changed.append((device, replace(before, text=one.text)))
    tx.settlements.add(fresh)
    tx.settlements.put(changed)
    tx.settlements.reopen(opened)


def _settlements(items: Mapping[str, ItemReport], enrolment: int, now_s: float) -> dict[RequestKey, StoredSettlement]:
    keyed = {RequestKey(name, report.rev, report.retry): report for name, report in items.items()}
    return {
        key: StoredSettlement(
            key=key,
            enrolment=enrolment,
            state=report.state,
            code=report.code or "",
            text=report.text or "",
            at_s=now_s,
        )
        for key, report in keyed.items()
    }
