"""Requests in the store: the documents they stand in, what came of them, and changes by two people at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from edgegpu_cloud.errors import ConflictError
from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.limits.history import (
    ContainerKey,
    LimitsHistoryEntry,
    limits_history,
    revisions_of,
    with_outcomes,
)
from edgegpu_cloud.fleet.limits.requests import RequestedItem, requested_items
from edgegpu_cloud.phrases import phrase, phrase_n
from edgegpu_cloud.store.records import BoxRecord, Revision
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AppLimits

_MOST_AUDITS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedLimits:
    """Limits that a change has replaced: `by` whom and when (seconds since 1970) they were requested."""

    by: str
    at_s: float
    limits: AppLimits


@dataclass(frozen=True, slots=True)
class LimitsRevision:
    """The revision in which limits were set; `replaced`: those that another person had set before, if one had."""

    rev: int
    replaced: ReplacedLimits | None


def stored_revisions(tx: Transaction, box: BoxRecord) -> list[Revision]:
    """Return a box's documents, oldest first: those that are kept, and older ones as the audit has them."""
    return revisions_of(tx.boxes.revisions(box.device), tx.notes.audits(box.device, limit=_MOST_AUDITS))


def requests_of(tx: Transaction, box: BoxRecord, *, now_s: float) -> list[RequestedItem]:
    """Return what is requested of a box now: when, by whom, and what came of it."""
    [details] = box_details(tx, [box], now_s=now_s)
    return requested_items(details, tx.boxes.revisions(box.device), tx.settlements.of(box.device))


def history_of(tx: Transaction, box: BoxRecord, key: ContainerKey, *, now_s: float) -> list[LimitsHistoryEntry]:
    """Return the changes of a container's requested limits, newest first, each with what came of it."""
    entries = limits_history(stored_revisions(tx, box), key)
    now = next((one for one in requests_of(tx, box, now_s=now_s) if one.name == key.item), None)
    return with_outcomes(entries, tx.settlements.of(box.device), now)


def check_unchanged(tx: Transaction, box: BoxRecord, key: ContainerKey, seen_rev: int) -> None:
    """Refuse where somebody has changed the limits of a container since the revision that a person has seen.

    Raises:
        ConflictError: somebody has; the text says who, and what they set.
    """
    if seen_rev == box.sequence.rev:
        return
    later = [one for one in limits_history(stored_revisions(tx, box), key) if one.rev > seen_rev]
    if not later and seen_rev < box.sequence.rev:
        return
    if not later:
        text = phrase(
            "cannot change %(box)s: it has revision %(rev)s, and %(seen_rev)s is none of its own",
            box=box.name,
            rev=box.sequence.rev,
            seen_rev=seen_rev,
        )
        raise ConflictError(text, remedy=phrase("look at it again, then decide"))
    raise _changed_meanwhile(box, key, later[0])


def check_unchanged_by_others(
    tx: Transaction, box: BoxRecord, key: ContainerKey, *, since: Mapping[DeviceId, int], by: str
) -> None:
    """Refuse where the limits of a container stand by somebody else, who has set them after what a person has seen.

    Args:
        tx: reads the box's documents.
        box: the box.
        key: the container.
        since: of boxes whose documents have changed since then, the first revision that the person has not seen.
        by: the person; limits that they have set themselves meanwhile, or a rollout of theirs, are no conflict.

    Raises:
        ConflictError: they do; the text says who, and what they set.
    """
    if (first := since.get(box.device)) is None:
        return
    later = [one for one in limits_history(stored_revisions(tx, box), key) if one.rev >= first]
    if later and later[0].by != by:
        raise _changed_meanwhile(box, key, later[0])


def replaced_limits(tx: Transaction, box: BoxRecord, key: ContainerKey, rev: int) -> ReplacedLimits | None:
    """Return the limits of another person which those of this revision, the newest, have replaced; None: of nobody."""
    entries = limits_history(stored_revisions(tx, box), key)
    for now, former in pairwise(entries):
        if now.rev == rev and not now.again and now.before is not None and former.by != now.by:
            return ReplacedLimits(by=former.by, at_s=former.at_s, limits=now.before)
    return None


def _changed_meanwhile(box: BoxRecord, key: ContainerKey, newest: LimitsHistoryEntry) -> ConflictError:
    now = newest.after
    what = (
        phrase_n("%(num)d unit, core %(core)s", "%(num)d units, core %(core)s", now.memory_units, core=now.core)
        if now is not None
        else phrase("no limits")
    )
    text = phrase(
        "cannot change %(namespace)s/%(app)s/%(container)s on %(box)s: %(by)s has set %(what)s meanwhile",
        namespace=key.namespace,
        app=key.app,
        container=key.container,
        box=box.name,
        by=newest.by,
        what=what,
    )
    return ConflictError(text, remedy=phrase("look at it, then set yours again if they shall count"))
