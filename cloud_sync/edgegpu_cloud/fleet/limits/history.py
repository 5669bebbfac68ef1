"""The history of an app's requested limits: who changed them, when, from what to what, what came of it; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.audit.documents import document_before
from edgegpu_cloud.fleet.audit.entries import AuditedChange
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState, RequestOutcome, outcome_of_settlement
from edgegpu_cloud.fleet.limits.report_words import report_words
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.store.records import AuditEntry, Json, Revision
from edgegpu_cloud.store.settlements.records import BoxSettlements, RequestKey
from edgegpu_sync.messages.spec import AppLimits, asked, item_name


@dataclass(frozen=True, slots=True)
class ContainerKey:
    """A container of an app, by the names of Kubernetes."""

    namespace: str
    app: str
    container: str

    @property
    def item(self) -> str:
        """The name under which its limits are settled."""
        return f"app_limits/{self.namespace}/{self.app}/{self.container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsHistoryEntry:
    """One change of requested limits, in revision `rev`, at `at_s` seconds since 1970.

    `before` and `after` are None where none were requested. `again`: the same limits were asked for once more.
    `outcome`: what came of it; None where the request was taken back, or nobody has looked.
    """

    rev: int
    at_s: float
    by: str
    before: AppLimits | None
    after: AppLimits | None
    again: bool = False
    outcome: RequestOutcome | None = None


def revisions_of(stored: Iterable[Revision], audits: Iterable[AuditEntry]) -> list[Revision]:
    """Return a box's documents by revision, oldest first: those in the store, and older ones from the audit.

    The audit has of each revision the items that it changed, so a document is made of the one after it. Entries of
    earlier versions have the whole document.
    """
    found = {one.rev: one for one in stored}
    document: Json = found[min(found)].spec if found else {}
    entries = [one for one in audits if one.what == AuditKind.BOX_SPEC and "rev" in one.detail]
    for entry in sorted(entries, key=lambda one: int(one.detail["rev"]), reverse=True):
        rev, detail = int(entry.detail["rev"]), entry.detail
        if rev not in found:
            document = detail.get("spec", document)
            found[rev] = Revision(rev=rev, spec=document, at_s=entry.at_s, by=entry.by)
        document = found[rev].spec
        if {"before", "after"} <= detail.keys():
            document = document_before(document, AuditedChange(detail["before"], detail["after"]))
    return [found[rev] for rev in sorted(found)]


def limits_history(revisions: Iterable[Revision], key: ContainerKey) -> list[LimitsHistoryEntry]:
    """Return the changes of one container's requested limits, newest first.

    Args:
        revisions: of one box, oldest first; the first of them counts as a change where it has the limits.
        key: the container.
    """
    entries: list[LimitsHistoryEntry] = []
    before: AppLimits | None = None
    for one in revisions:
        after = limits_in(one.spec, one.rev, key)
        if _amounts(before) != _amounts(after) or _retry(before) != _retry(after):
            entry = LimitsHistoryEntry(
                rev=one.rev,
                at_s=one.at_s,
                by=one.by,
                before=before,
                after=after,
                again=before is not None and _amounts(before) == _amounts(after),
            )
            entries.append(entry)
        before = after
    return entries[::-1]


def with_outcomes(
    entries: Sequence[LimitsHistoryEntry], settlements: BoxSettlements, now: RequestedItem | None
) -> list[LimitsHistoryEntry]:
    """Return a history with what came of each change.

    Args:
        entries: newest first.
        settlements: of the box, as far as they are kept.
        now: the container's present request, with what the box reports of it.
    """
    later = [None, *entries]
    return [
        one if one.after is None else replace(one, outcome=_outcome(one, one.after, next_, settlements, now))
        for one, next_ in zip(entries, later, strict=False)
    ]


def _outcome(
    entry: LimitsHistoryEntry,
    asked_for: AppLimits,
    later: LimitsHistoryEntry | None,
    settlements: BoxSettlements,
    now: RequestedItem | None,
) -> RequestOutcome:
    key = RequestKey(item_name(asked_for), asked_for.rev, asked_for.retry)
    told = now.report if later is None and now is not None else None
    if (settled := settlements.by_key.get(key)) is not None:
        outcome = outcome_of_settlement(settled)
        same = told is not None and (told.code or "", told.text or "") == (settled.code, settled.text)
        return replace(outcome, text=report_words(told)) if told is not None and same else outcome
    if later is None and now is not None:
        code, text = (told.code or "", report_words(told)) if told is not None else ("", "")
        return RequestOutcome(state=now.state, code=code, text=text)
    if later is None or entry.at_s < settlements.since_s:
        return RequestOutcome(state=OutcomeState.NOT_KNOWN)
    return RequestOutcome(state=OutcomeState.REPLACED, at_s=later.at_s)


def limits_in(spec: Json, rev: int, key: ContainerKey) -> AppLimits | None:
    """Return the limits of a container in a stored document; None where it has none that this version can read."""
    found = (one.item for one in asked(spec, rev) if isinstance(one.item, AppLimits))
    return next((one for one in found if (one.namespace, one.app, one.container) == _names(key)), None)


def _names(key: ContainerKey) -> tuple[str, str, str]:
    return key.namespace, key.app, key.container


def _amounts(item: AppLimits | None) -> Json | None:
    return None if item is None else item.model_dump(exclude={"rev", "retry"})


def _retry(item: AppLimits | None) -> int:
    return 0 if item is None else item.retry
