"""What came of requested limits on a box; pure."""

from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.fleet.limits.report_words import report_words, words_of_text
from edgegpu_cloud.fleet.views import BoxView, current_report, is_dormant
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.result_codes import code_words
from edgegpu_cloud.store.settlements.records import StoredSettlement
from edgegpu_sync.messages.spec import AppLimits, item_name
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.states import ResultCode

_DRIFTED = "Drifted"


class OutcomeState(StrEnum):
    """What a box has done with requested limits."""

    NOT_REQUESTED = "not_requested"
    WAITING = "waiting"
    """The box has not reported the request yet."""
    WORKING = "working"
    APPLIED = "applied"
    REJECTED = "rejected"
    FAILED = "failed"
    PENDING = "pending"
    UNSUPPORTED = "unsupported"
    ELSEWHERE = "elsewhere"
    """Another box settles the app limits of the cluster."""
    DORMANT = "dormant"
    """It waits until GPU sharing is installed."""
    REPLACED = "replaced"
    """Another request took its place before the box reported on it."""
    NOT_KNOWN = "not_known"
    """It is older than what is kept of settlements."""


_STATES = {
    ItemState.OPEN: OutcomeState.WORKING,
    ItemState.APPLIED: OutcomeState.APPLIED,
    ItemState.REJECTED: OutcomeState.REJECTED,
    ItemState.FAILED: OutcomeState.FAILED,
    ItemState.PENDING: OutcomeState.PENDING,
    ItemState.UNSUPPORTED: OutcomeState.UNSUPPORTED,
    ItemState.ELSEWHERE: OutcomeState.ELSEWHERE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOutcome:
    """The outcome of a request. `report` is the box's own; None while it has none of this request.

    `drifted_by`: who has written other limits back since they were applied; empty: nobody.
    """

    state: OutcomeState
    report: ItemReport | None = None
    drifted_by: str = ""

    @property
    def text(self) -> str:
        """The box's own words, with the code before them; empty where it has none."""
        if self.report is None:
            return ""
        code, words = code_words(self.report.code or ""), report_words(self.report)
        return phrase("%(state)s: %(words)s", state=code, words=words) if code and words else code or words

    @property
    def is_problem(self) -> bool:
        """Whether a person has to act."""
        states = {OutcomeState.REJECTED, OutcomeState.FAILED, OutcomeState.UNSUPPORTED}
        return self.state in states or bool(self.drifted_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """What came of one request, which may be an earlier one. `code` and `text` are the box's words, empty without.

    `at_s`: when the controller stored that it was settled, or when another request replaced it; seconds since 1970,
    None where neither is known.
    """

    state: OutcomeState
    at_s: float | None = None
    code: str = ""
    text: str = ""


def outcome_of_settlement(settled: StoredSettlement) -> RequestOutcome:
    """Return what came of a request by its stored settlement."""
    dormant = settled.state is ItemState.REJECTED and settled.code == ResultCode.NOT_INSTALLED
    return RequestOutcome(
        state=OutcomeState.DORMANT if dormant else _STATES[settled.state],
        at_s=settled.at_s,
        code=settled.code,
        text=words_of_text(settled.text),
    )


def state_of(report: ItemReport | None) -> OutcomeState:
    """Return the state of a request by the box's report of it."""
    if report is None:
        return OutcomeState.WAITING
    return OutcomeState.DORMANT if is_dormant(report) else _STATES[report.state]


def outcome_of(box: BoxView, item: AppLimits | None) -> LimitsOutcome:
    """Return what came of the limits that are requested now; an older report of the same app does not count."""
    if item is None:
        return LimitsOutcome(state=OutcomeState.NOT_REQUESTED)
    report = current_report(box.items.get(item_name(item)), item)
    if report is None:
        return LimitsOutcome(state=OutcomeState.WAITING)
    drifts = (one.manager or one.text for one in report.conditions or () if one.type == _DRIFTED)
    return LimitsOutcome(state=state_of(report), report=report, drifted_by=next(drifts, ""))
