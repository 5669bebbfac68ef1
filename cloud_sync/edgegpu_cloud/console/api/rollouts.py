"""Rollouts: planned, started, listed, one with its boxes; paused, resumed, aborted."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, assert_never

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiOperator, ApiVisitor
from edgegpu_cloud.console.api.conditions import Limit, NumberCursor, next_address, page_with
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.models.fleet import ApiPage, sharing_settings
from edgegpu_cloud.console.api.models.rollouts import (
    ApiLimitsChange,
    ApiRollout,
    ApiRolloutAbort,
    ApiRolloutBox,
    ApiRolloutChange,
    ApiRolloutPlan,
    ApiRolloutRequest,
    ApiRolloutStart,
    ApiSharingChange,
    ApiUpgradeChange,
    limits_of,
)
from edgegpu_cloud.console.api.models.undo import ApiWayBack
from edgegpu_cloud.console.api.problems import ApiRequestError
from edgegpu_cloud.console.paths import PathNumber
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.rollouts.changes import RolloutChange, read_release
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.strategy import read_strategy
from edgegpu_cloud.store.rollouts.records import RolloutBoxState

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/rollouts", tags=["rollouts"])


def _rollouts(request: Request, visitor: ApiVisitor) -> Rollouts:
    parts: ConsoleParts = request.state.parts
    return parts.rollouts(visitor)


ApiRollouts = Annotated[Rollouts, Depends(_rollouts)]


@router.get("")
def list_rollouts(
    request: Request, rollouts: ApiRollouts, limit: Limit = 50, cursor: NumberCursor = 0
) -> ApiPage[ApiRollout]:
    """Return rollouts, newest first."""
    found = rollouts.all(limit=limit + 1, before=cursor or None)
    more = str(found[limit - 1].number) if len(found) > limit else ""
    return page_with(request, [ApiRollout.model_validate(one) for one in found[:limit]], more)


@router.post("/preview")
def preview_rollout(
    request: Request, body: ApiRolloutRequest, rollouts: ApiRollouts, limit: Limit = 50, cursor: NumberCursor = 0
) -> ApiRolloutPlan:
    """Return the waves of a rollout as they would be now, with a part of its boxes, and whether limits fit there."""
    plan = rollouts.preview(_wanted(body), limit=limit, offset=cursor)
    more = str(cursor + limit) if cursor + limit < plan.boxes else ""
    values = {name: getattr(plan, name) for name in ("words", "boxes", "waves", "notes", "seen", "steps")}
    return ApiRolloutPlan.model_validate(values | {"next": next_address(request, more)})


@router.post("", status_code=201, response_model=ApiRollout)
def start_rollout(body: ApiRolloutStart, _: ApiOperator, rollouts: ApiRollouts, once: Once) -> Response:
    """Start a rollout."""
    expect = None if body.expect is None else BoxSet.read(body.expect)

    def start() -> ApiRollout:
        return _shown(rollouts, rollouts.start(_wanted(body), expect_boxes=body.expect_boxes, expect=expect))

    return once(start, status=201)


def _wanted(body: ApiRolloutRequest) -> RolloutRequest:
    if bool(body.boxes) + bool(body.labels) + body.all != 1:
        text = "cannot tell which boxes the rollout is for"
        raise ApiRequestError(text, remedy="give either `boxes`, or `labels`, or `all`: true")
    return RolloutRequest(
        change=_change(body.change),
        boxes=body.boxes,
        selector=body.labels,
        first=body.first,
        strategy=read_strategy(body.strategy.model_dump(mode="json")),
    )


def _change(body: ApiRolloutChange) -> RolloutChange:
    match body:
        case ApiLimitsChange():
            return limits_of(body)
        case ApiSharingChange():
            return sharing_settings(body)
        case ApiUpgradeChange():
            return read_release(body.model_dump(exclude={"kind"}))
        case _:
            assert_never(body)


def _shown(rollouts: Rollouts, number: int) -> ApiRollout:
    return ApiRollout.model_validate(rollouts.show(number))


@router.get("/{number}")
def one_rollout(number: PathNumber, rollouts: ApiRollouts) -> ApiRollout:
    """Return a rollout with its waves."""
    return _shown(rollouts, number)


@router.get("/{number}/boxes")
def rollout_boxes(
    request: Request,
    number: PathNumber,
    rollouts: ApiRollouts,
    *,
    state: Annotated[
        tuple[RolloutBoxState, ...], Query(description="In one of these states; none: all.", max_length=20)
    ] = (),
    limit: Limit = 50,
    cursor: NumberCursor = 0,
) -> ApiPage[ApiRolloutBox]:
    """Return the boxes of a rollout in its order, and where each stands."""
    found = rollouts.boxes(number, state, limit=limit + 1, offset=cursor)
    more = str(cursor + limit) if len(found) > limit else ""
    return page_with(request, [ApiRolloutBox.model_validate(one) for one in found[:limit]], more)


@router.post("/{number}/pause", response_model=ApiRollout)
def pause_rollout(number: PathNumber, _: ApiOperator, rollouts: ApiRollouts, once: Once) -> Response:
    """Pause a rollout: no box is begun until it is resumed; boxes that are at it end."""
    return once(lambda: _after(rollouts.pause, rollouts, number))


@router.post("/{number}/resume", response_model=ApiRollout)
def resume_rollout(number: PathNumber, _: ApiOperator, rollouts: ApiRollouts, once: Once) -> Response:
    """Resume a rollout; the gate that holds it does not count any more."""
    return once(lambda: _after(rollouts.resume, rollouts, number))


@router.get("/{number}/abort")
def preview_return(number: PathNumber, rollouts: ApiRollouts) -> ApiWayBack:
    """Say what the return of a rollout would do now, as an abort with `returns` asks for it; nothing is changed."""
    return ApiWayBack.model_validate(rollouts.way_back(number))


@router.post("/{number}/abort", response_model=ApiRollout)
def abort_rollout(
    number: PathNumber, body: ApiRolloutAbort, _: ApiOperator, rollouts: ApiRollouts, once: Once
) -> Response:
    """Abort a rollout: queued boxes are cancelled, boxes that are at it end."""
    return once(lambda: _after(partial(rollouts.abort, returns=body.returns), rollouts, number))


def _after(change: Callable[[int], None], rollouts: Rollouts, number: int) -> ApiRollout:
    change(number)
    return _shown(rollouts, number)
