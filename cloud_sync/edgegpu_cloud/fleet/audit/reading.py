"""Stored entries of the audit as they are read: in one form, also those that earlier versions wrote; pure."""

from dataclasses import dataclass

from edgegpu_cloud.fleet.audit.arguments import audited_args
from edgegpu_cloud.fleet.audit.documents import stored_items
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.store.records import AuditEntry, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """A stored entry with its parts. `before` and `after` are None where the version that wrote it kept none.

    `result` is what was known at once: `done`, `refused: WHY`, or empty.
    """

    entry: AuditEntry
    before: Json | None
    after: Json | None
    detail: Json
    result: str


def read_entry(entry: AuditEntry) -> StoredChange:
    """Return a stored entry with its parts."""
    detail = dict(entry.detail)
    before, after = _values(detail.pop("before", None)), _values(detail.pop("after", None))
    result = str(detail.pop("result", ""))
    match entry.what, detail:
        case AuditKind.BOX_LABELS, {"labels": dict(labels)}:
            after, detail = labels, {}
        case AuditKind.BOX_RENAMED, {"from": str(old), "to": str(new)}:
            before, after, detail = {"name": old}, {"name": new}, {}
        case AuditKind.COMMAND | AuditKind.OPERATION, {"args": dict(args)}:
            detail = detail | {"args": audited_args(args)}
        case AuditKind.BOX_SPEC, {"rev": int(rev), "spec": dict(spec)}:
            edited = {name: item for name, item in stored_items(spec).items() if _rev(item) == rev}
            after, detail = edited or None, {"rev": rev} if edited else detail
    return StoredChange(entry=entry, before=before, after=after, detail=detail, result=result)


def _values(value: object) -> Json | None:
    """Return one side of a change; rollouts once had the name of a state there."""
    if isinstance(value, str):
        return {"state": value}
    return value if isinstance(value, dict) else None


def _rev(item: object) -> object:
    return item.get("rev") if isinstance(item, dict) else None
