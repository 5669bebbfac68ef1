"""The audit as people see it: each change with what was before and after, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.audit.reading import read_entry
from edgegpu_cloud.fleet.audit.results import AuditResult, results_of
from edgegpu_cloud.store.records import AuditEntry, Json
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """A change by a person, at `at_s` seconds since 1970. `box`: the name of its box now, empty where there is none.

    `before` and `after` have the changed values alone; empty: there was nothing before, or is nothing left; None: an
    earlier version has stored the entry, and not kept that. `detail` is what else says which thing was changed.
    """

    number: int
    at_s: float
    by: str
    what: str
    device: str
    box: str
    before: Json | None
    after: Json | None
    detail: Json
    result: AuditResult


def audit_views(tx: Transaction, entries: Sequence[AuditEntry]) -> list[AuditView]:
    """Return entries as people see them, in the same order."""
    changes = [read_entry(one) for one in entries]
    boxes = tx.boxes.get({DeviceId(one.device) for one in entries if one.device})
    names = {str(device): box.name for device, box in boxes.items()}
    return [
        AuditView(
            number=one.entry.number,
            at_s=one.entry.at_s,
            by=one.entry.by,
            what=one.entry.what,
            device=one.entry.device,
            box=names.get(one.entry.device, ""),
            before=one.before,
            after=one.after,
            detail=one.detail,
            result=result,
        )
        for one, result in zip(changes, results_of(tx, changes), strict=True)
    ]
