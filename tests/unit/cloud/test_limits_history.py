"""The history of an app's limits: from the documents in the store and in the audit, newest first."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from edgegpu_cloud.fleet.audit.documents import changed_items
from edgegpu_cloud.fleet.limits.history import (
    ContainerKey,
    LimitsHistoryEntry,
    limits_history,
    revisions_of,
    with_outcomes,
)
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.store.records import AuditEntry, Revision
from edgegpu_cloud.store.settlements.records import BoxSettlements, RequestKey, StoredSettlement
from edgegpu_sync.messages.spec import AppLimits, Sharing, Spec
from edgegpu_sync.messages.uplink import ItemState

ASR = ContainerKey("default", "asr", "main")


def item(units: int, **more: Any) -> AppLimits:  # noqa: ANN401  (the item's fields)
    fields = {"namespace": "default", "app": "asr", "container": "main", "rev": 1, "core": 1, **more}
    return AppLimits(cluster="c" * 8, memory_units=units, **fields)


def document(rev: int, *items: AppLimits, by: str = "ann", sharing: bool = False) -> Revision:
    spec = Spec(app_limits=items, sharing=Sharing(rev=1, installed=True) if sharing else None)
    return Revision(rev=rev, spec=spec.to_json(), at_s=rev * 60.0, by=by)


def told(entry: LimitsHistoryEntry) -> tuple[int, str, int | None, int | None]:
    before, after = (None if one is None else one.memory_units for one in (entry.before, entry.after))
    return entry.rev, entry.by, before, after


def test_each_change_of_the_container_and_nothing_else() -> None:
    other = item(7, app="plate")
    found = limits_history(
        [
            document(1, sharing=True),
            document(2, item(4), by="bob"),
            document(3, item(4), other),
            document(4, item(10), other),
            document(5, other),
        ],
        ASR,
    )
    assert [told(one) for one in found] == [(5, "ann", 10, None), (4, "ann", 4, 10), (2, "bob", None, 4)]


def test_the_same_limits_once_more_are_told_so() -> None:
    found = limits_history([document(1, item(4)), document(2, item(4, retry=1))], ASR)
    assert [(one.rev, one.again) for one in found] == [(2, True), (1, False)]


def test_documents_that_the_store_has_dropped_come_from_the_audit() -> None:
    old = document(1, item(1))
    audits = [
        AuditEntry(at_s=60.0, by="ann", what="box.spec", detail={"rev": 1, "spec": old.spec}),
        AuditEntry(at_s=61.0, by="ann", what="box.labels", detail={"labels": {}}),
        AuditEntry(at_s=62.0, by="ann", what="box.spec", detail={}),
        AuditEntry(at_s=120.0, by="ann", what="box.spec", detail={"rev": 2, "spec": document(2, item(99)).spec}),
    ]
    found = limits_history(revisions_of([document(2, item(2))], audits), ASR)
    assert [told(one) for one in found] == [(2, "ann", 1, 2), (1, "ann", None, 1)]


def test_documents_are_made_of_the_items_that_the_audit_has_of_each_later_change() -> None:
    other, sharing = item(7, app="plate"), Sharing(rev=5, installed=True)
    specs = [
        Spec(app_limits=(item(1),)),
        Spec(app_limits=(item(1), other)),
        Spec(app_limits=(item(4, rev=3), other)),
        Spec(app_limits=(other,)),
        Spec(app_limits=(other,), sharing=sharing),
        Spec(app_limits=(other, item(9, rev=7)), sharing=sharing),
    ]
    revs = (1, 2, 3, 4, 5, 7)  # 6 was given when the box was confirmed: the same document, and no change of it
    changes = [changed_items(before, after) for before, after in pairwise([Spec(), *specs])]
    audits = [
        AuditEntry(
            at_s=rev * 60.0,
            by="bob",
            what="box.spec",
            detail={"rev": rev, "before": change.before, "after": change.after},
        )
        for rev, change in zip(revs, changes, strict=True)
    ]
    newest = Revision(rev=7, spec=specs[-1].to_json(), at_s=1.0, by="ann")
    found = revisions_of([newest], audits)
    assert [one.rev for one in found] == [*revs]
    read = [desired_items(Spec.model_validate_json(json.dumps(one.spec))) for one in found]
    assert read == [desired_items(one) for one in specs]
    history = limits_history(found, ASR)
    assert [told(one) for one in history] == [
        (7, "ann", None, 9),
        (4, "bob", 4, None),
        (3, "bob", 1, 4),
        (1, "bob", None, 1),
    ]
    old = AuditEntry(at_s=1.0, by="old", what="box.spec", detail={"rev": 1, "spec": specs[0].to_json()})
    assert [one.spec for one in revisions_of([newest], [old, *audits[1:]])] == [one.spec for one in found]
    assert next(one.by for one in revisions_of([newest], [old, *audits[1:]])) == "old"


def test_a_document_that_this_version_cannot_read_has_no_limits() -> None:
    broken = Revision(rev=2, spec={"app_limits": [{"namespace": "DEFAULT"}, 7]}, at_s=1.0, by="ann")
    assert [told(one) for one in limits_history([document(1, item(4)), broken], ASR)] == [
        (2, "ann", 4, None),
        (1, "ann", None, 4),
    ]


class TestOutcomes:
    """What came of each change, by what is kept of settlements."""

    def told(self, since_s: float, *settled: StoredSettlement) -> list[tuple[OutcomeState, float | None]]:
        entries = limits_history([document(1, item(4)), document(2, item(5, rev=2)), document(3, item(6, rev=3))], ASR)
        kept = BoxSettlements(by_key={one.key: one for one in settled}, since_s=since_s)
        found = with_outcomes(entries, kept, None)
        return [(one.outcome.state, one.outcome.at_s) for one in found if one.outcome is not None]

    def settled(self, rev: int, state: ItemState, code: str = "") -> StoredSettlement:
        key = RequestKey("app_limits/default/asr/main", rev, 0)
        return StoredSettlement(key=key, enrolment=1, state=state, code=code, text="", at_s=rev * 60.0 + 4)

    def test_a_settled_request_has_its_end_and_its_time(self) -> None:
        ends = [self.settled(1, ItemState.APPLIED), self.settled(2, ItemState.REJECTED, "NEVER_FITS")]
        assert self.told(0.0, *ends)[1:] == [(OutcomeState.REJECTED, 124.0), (OutcomeState.APPLIED, 64.0)]
        dormant = self.settled(2, ItemState.REJECTED, "NOT_INSTALLED")
        assert self.told(0.0, dormant)[1] == (OutcomeState.DORMANT, 124.0)

    def test_one_without_a_settlement_was_replaced_by_the_next(self) -> None:
        assert self.told(0.0)[1:] == [(OutcomeState.REPLACED, 180.0), (OutcomeState.REPLACED, 120.0)]

    def test_one_from_before_settlements_were_kept_is_not_known(self) -> None:
        assert self.told(90.0)[1:] == [(OutcomeState.REPLACED, 180.0), (OutcomeState.NOT_KNOWN, None)]
