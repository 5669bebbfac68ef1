"""The entries of the audit as they are written: each has what was before and after; no other module makes one."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.store.notes import PART_OF
from edgegpu_cloud.store.records import AuditEntry, Json
from edgegpu_cloud.store.store import Transaction

DONE, REFUSED = "done", "refused"
"""Results that are known at once. Of what a box does, the result is read when the entry is shown."""


@dataclass(frozen=True, slots=True)
class Author:
    """The person who changes something, and when."""

    by: str
    now_s: float
    part_of: str = ""
    """The change of many boxes that this is a part of: the id of an operation, or `rollout/NUMBER`."""


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """What was changed, before and after: the changed values alone, by name, and never a secret.

    `before` is empty where something was made, `after` where it was taken away.
    """

    before: Json
    after: Json


NOTHING = AuditedChange({}, {})
"""The change of an entry that changes nothing: a sign-in, or what was refused."""


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> AuditedChange:
    """Return those values that differ; one that is not on a side is left out there."""
    return AuditedChange(
        {name: value for name, value in before.items() if name not in after or after[name] != value},
        {name: value for name, value in after.items() if name not in before or before[name] != value},
    )


def entry_of(
    who: Author,
    what: AuditKind,
    change: AuditedChange,
    *,
    device: str = "",
    detail: Json | None = None,
    result: str = "",
) -> AuditEntry:
    """Return an entry to be stored.

    Args:
        who: the person, and when.
        what: the kind of the change.
        change: what was before and after.
        device: the box; empty where it concerns none.
        detail: what else says which thing was changed, as the id of a command.
        result: `DONE`, or `REFUSED` with the reason behind a colon; empty where it is read when the entry is shown.
    """
    values: Json = {
        **(detail or {}),
        **({PART_OF: who.part_of} if who.part_of else {}),
        "before": change.before,
        "after": change.after,
    }
    values |= {"result": result} if result else {}
    return AuditEntry(at_s=who.now_s, by=who.by, what=what.value, device=device, detail=values)


def audit(
    tx: Transaction,
    who: Author,
    what: AuditKind,
    change: AuditedChange,
    *,
    device: str = "",
    detail: Json | None = None,
) -> None:
    """Add a person's change to the audit; the arguments are those of `entry_of`."""
    tx.notes.audit(entry_of(who, what, change, device=device, detail=detail))
