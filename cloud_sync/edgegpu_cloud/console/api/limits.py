"""App limits and sharing settings of a box: read, previewed, changed under the revision that was seen."""

import json
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiFleet, ApiOperator
from edgegpu_cloud.console.api.boxes import item_body
from edgegpu_cloud.console.api.conditions import (
    ExpectedRevision,
    IfNoneMatch,
    revision_tag,
    tagged,
)
from edgegpu_cloud.console.api.idempotency import MadeOnce, Once
from edgegpu_cloud.console.api.models.fleet import (
    ApiDesired,
    ApiLimits,
    ApiLimitsHistoryEntry,
    ApiLimitsRequest,
    ApiLimitsRevision,
    ApiPastLimits,
    ApiReplacedLimits,
    ApiRequestOutcome,
    ApiRevision,
    ApiSharingRequest,
    sharing_settings,
)
from edgegpu_cloud.console.api.models.limits import (
    ApiAmounts,
    ApiCardNumbers,
    ApiLimitsPatch,
    ApiLimitsPreview,
    ApiLimitsPreviewRequest,
)
from edgegpu_cloud.console.api.problems import StaleRevisionError
from edgegpu_cloud.errors import ConflictError, NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.idempotency import InFlightError
from edgegpu_cloud.fleet.limits.changes import ReplacedLimits
from edgegpu_cloud.fleet.limits.history import ContainerKey, LimitsHistoryEntry
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.present.amounts import whole_in
from edgegpu_cloud.fleet.preview.limits import Preview, preview
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.records import BoxState
from edgegpu_sync.messages.spec import AppLimits, OnDrift

router = APIRouter(prefix="/boxes/{box}", tags=["limits and sharing"])

Part = Annotated[str, Path(min_length=1, max_length=253)]
_OF_APP = "/limits/{namespace}/{app}/{container}"


@router.get("/desired", response_model=ApiDesired)
def desired(box: str, fleet: ApiFleet, if_none_match: IfNoneMatch = "") -> Response:
    """Return the box's desired document; its ETag is its revision, for If-Match."""
    details = fleet.details(box)
    body = ApiDesired(revision=details.box.rev, spec=details.spec.to_json())
    return tagged(body, if_none_match, revision=details.box.rev)


@router.get("/limits")
def list_limits(box: str, fleet: ApiFleet) -> list[ApiLimits]:
    """Return the requested limits of the box's apps: when, by whom, and what came of each."""
    return [_limits(request, one) for request in fleet.requests(box) if isinstance(one := request.item, AppLimits)]


def _limits(request: RequestedItem, one: AppLimits) -> ApiLimits:
    return ApiLimits(
        namespace=one.namespace,
        app=one.app,
        container=one.container,
        memory_units=one.memory_units,
        core=one.core,
        force=one.force,
        interrupt=one.interrupt,
        live=one.live,
        on_drift=one.on_drift.value,
        report=None if request.report is None else item_body(request.report),
        requested_at_s=request.requested_at_s,
        requested_by=request.by,
        settled_at_s=request.settled_at_s,
    )


@router.get(_OF_APP, response_model=ApiLimits)
def one_limits(
    box: str, namespace: Part, app: Part, container: Part, fleet: ApiFleet, if_none_match: IfNoneMatch = ""
) -> Response:
    """Return the requested limits of one container of an app."""
    key = ContainerKey(namespace, app, container)
    for request in fleet.requests(box):
        if request.name == key.item and isinstance(request.item, AppLimits):
            return tagged(_limits(request, request.item), if_none_match)
    view = fleet.box(box)
    text = f"cannot find limits of {namespace}/{app}/{container}: none are requested of {view.name}"
    raise NotFoundError(text, remedy=f"GET /api/v1/boxes/{view.device}/limits lists those that are")


@router.get(f"{_OF_APP}/history")
def limits_history(
    box: str, namespace: Part, app: Part, container: Part, fleet: ApiFleet
) -> list[ApiLimitsHistoryEntry]:
    """Return each change of the limits of one container, newest first: when, by whom, and what came of it."""
    return [_entry(one) for one in fleet.limits_history(box, ContainerKey(namespace, app, container))]


def _entry(one: LimitsHistoryEntry) -> ApiLimitsHistoryEntry:
    return ApiLimitsHistoryEntry(
        rev=one.rev,
        requested_at_s=one.at_s,
        requested_by=one.by,
        before=None if one.before is None else _past(one.before),
        after=None if one.after is None else _past(one.after),
        again=one.again,
        outcome=None if one.outcome is None else ApiRequestOutcome.model_validate(one.outcome),
    )


def _past(one: AppLimits) -> ApiPastLimits:
    return ApiPastLimits.model_validate(one.model_dump(mode="json", exclude={"critical"}))


@router.put(_OF_APP, response_model=ApiLimitsRevision)
def set_limits(
    box: str,
    namespace: Part,
    app: Part,
    container: Part,
    body: ApiLimitsRequest,
    _: ApiOperator,
    fleet: ApiFleet,
    expected: ExpectedRevision,
    once: Once,
) -> Response:
    """Set the limits of one container of an app, and say whose they replace. The same limits again are tried again."""
    wanted = _patch(ContainerKey(namespace, app, container), body)
    return _set(fleet, box, wanted, seen_rev=body.seen_rev, expected=expected, once=once)


@router.patch(_OF_APP, response_model=ApiLimitsRevision)
def change_limits(
    box: str,
    namespace: Part,
    app: Part,
    container: Part,
    body: ApiLimitsPatch,
    _: ApiOperator,
    fleet: ApiFleet,
    expected: ExpectedRevision,
    once: Once,
) -> Response:
    """Change a part of the limits of one container: an amount that is left out stays as it is on the box."""
    wanted = _patch(ContainerKey(namespace, app, container), body)
    return _set(fleet, box, wanted, seen_rev=body.seen_rev, expected=expected, once=once)


def _patch(key: ContainerKey, body: ApiLimitsRequest | ApiLimitsPatch) -> LimitsPatch:
    drift = None if body.on_drift is None else OnDrift(body.on_drift)
    values = body.model_dump(exclude={"seen_rev", "on_drift"})
    return LimitsPatch(namespace=key.namespace, app=key.app, container=key.container, on_drift=drift, **values)


def _set(
    fleet: Fleet, box: str, limits: LimitsPatch, *, seen_rev: int | None, expected: int | None, once: MadeOnce
) -> Response:
    def change() -> ApiLimitsRevision:
        done = fleet.set_limits(box, limits, expect_rev=seen_rev, document_rev=expected)
        return ApiLimitsRevision(revision=done.rev, replaced=None if done.replaced is None else _theirs(done.replaced))

    return _changed(once, expected, change)


def _theirs(one: ReplacedLimits) -> ApiReplacedLimits:
    return ApiReplacedLimits(requested_by=one.by, requested_at_s=one.at_s, limits=_past(one.limits))


@router.delete(_OF_APP, response_model=ApiRevision)
def delete_limits(
    box: str,
    namespace: Part,
    app: Part,
    container: Part,
    _: ApiOperator,
    fleet: ApiFleet,
    expected: ExpectedRevision,
    once: Once,
) -> Response:
    """Drop the requested limits of one container; the limits on the box stay as they are."""

    def change() -> ApiRevision:
        return ApiRevision(revision=fleet.forget_limits(box, namespace, app, container, document_rev=expected))

    return _changed(once, expected, change)


def _changed(once: MadeOnce, expected: int | None, change: Callable[[], ApiRevision]) -> Response:
    def made() -> ApiRevision:
        try:
            return change()
        except InFlightError:
            raise
        except ConflictError as error:
            if expected is None:
                raise
            raise StaleRevisionError(error.text, remedy=error.remedy) from error

    answer = once(made)
    answer.headers["ETag"] = revision_tag(json.loads(bytes(answer.body))["revision"])
    return answer


@router.post("/limits/preview")
def preview_limits(box: str, body: ApiLimitsPreviewRequest, fleet: ApiFleet) -> ApiLimitsPreview:
    """Say whether limits fit, by the last reports of the boxes of the cluster; nothing is changed."""
    details = fleet.details(box)
    others = _others(fleet, details)
    wanted = LimitsPatch(
        namespace=body.namespace,
        app=body.app,
        container=body.container,
        memory_units=body.memory_units,
        core=body.core,
        live=body.live,
    )
    return preview_body(preview(details, others, whole_in(wanted, details, others)))


def preview_body(found: Preview) -> ApiLimitsPreview:
    """Return a preview as the API has it."""
    return ApiLimitsPreview(
        before=ApiAmounts.model_validate(found.before),
        after=ApiAmounts.model_validate(found.after),
        answer=found.answer.value,
        text=found.text,
        pods=found.pods.value,
        live=found.live,
        not_live=found.not_live,
        replicas=found.replicas,
        cards=[
            ApiCardNumbers.model_validate({name: getattr(one, name) for name in ApiCardNumbers.model_fields})
            for one in found.cards
        ],
        notes=list(found.notes),
        as_of_s=found.as_of_s,
        pods_as_of_s=found.pods_as_of_s,
    )


def _others(fleet: Fleet, details: BoxDetails) -> list[BoxDetails]:
    """Return the other enrolled boxes of a box's cluster, as far as the person sees them."""
    if not details.box.cluster:
        return []
    where = BoxFilter(clusters=frozenset({details.box.cluster}), states=frozenset({BoxState.ENROLLED}))
    return [fleet.details(one.device) for one in fleet.matching(where) if one.device != details.box.device]


@router.patch("/sharing", response_model=ApiRevision)
def set_sharing(
    box: str, body: ApiSharingRequest, _: ApiOperator, fleet: ApiFleet, expected: ExpectedRevision, once: Once
) -> Response:
    """Set how the box shares its cards. The same settings again are tried again."""

    def change() -> ApiRevision:
        return ApiRevision(revision=fleet.set_settings(box, sharing_settings(body), expect_rev=expected))

    return _changed(once, expected, change)


@router.delete("/sharing/{item}", response_model=ApiRevision)
def delete_sharing(
    box: str, item: Part, _: ApiOperator, fleet: ApiFleet, expected: ExpectedRevision, once: Once
) -> Response:
    """Take back a requested setting: isolation, policy, exclusions or unit_size. What is set on the box stays."""

    def change() -> ApiRevision:
        return ApiRevision(revision=fleet.forget_items(box, [item], expect_rev=expected))

    return _changed(once, expected, change)
