"""Operations: a change of many boxes is one request; listed, followed box by box, cancelled."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiOperator, ApiVisitor
from edgegpu_cloud.console.api.conditions import Cursor, Limit, next_address, page_with
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.limits import preview_body
from edgegpu_cloud.console.api.models.fleet import ApiModel, ApiPage, sharing_settings
from edgegpu_cloud.console.api.models.limits import ApiLimitsPreview, ApiLimitsSteps
from edgegpu_cloud.console.api.models.rollouts import ApiLimitsChange, ApiSharingChange, limits_of
from edgegpu_cloud.console.api.models.undo import ApiUndoPlan
from edgegpu_cloud.console.api.problems import ApiRequestError
from edgegpu_cloud.fleet.changes import LONGEST_WAIT_S
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, MOST_BOXES, BoxSet
from edgegpu_cloud.fleet.operations.operations import Operations, OperationView
from edgegpu_cloud.fleet.operations.sharing_preview import BoxSharingPreview
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind, OperationState
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/operations", tags=["operations"])

OperationId = Annotated[str, Path(min_length=1, max_length=40)]
BoxId = Annotated[str, Field(pattern="^[0-9a-z]{16}$")]
WaitS = Annotated[int, Field(ge=1, le=LONGEST_WAIT_S, description="How long a command may wait for its box.")]


class ApiInstallChange(ApiModel):
    """GPU sharing on boxes, or off them."""

    kind: Literal["install", "uninstall"]
    wait_s: WaitS = 3_600


class ApiCommandChange(ApiModel):
    """A command for each box."""

    kind: Literal["command"]
    op: Annotated[str, Field(min_length=1, max_length=80)]
    args: Annotated[dict[str, Any], Field(max_length=50)] = Field(default_factory=dict)
    wait_s: WaitS = 3_600


class ApiOperationTarget(ApiModel):
    """The boxes of an operation: either `devices`, or `labels`, or `all`."""

    devices: Annotated[tuple[BoxId, ...], Field(max_length=MOST_BOXES, description="Ids of boxes.")] = ()
    labels: Annotated[str, Field(max_length=500, description="A selector over labels: site=hall,rack!=3.")] = ""
    all: bool = Field(default=False, description="Every box that you see.")
    askable: bool = Field(
        default=False,
        description="Of `labels` or `all`, without boxes that are revoked, set aside, blocked or uninstalled.",
    )
    one_of_each_cluster: bool = Field(
        default=False,
        description="Of `labels` or `all`, for limits: in the place of the boxes of a cluster the one that applies its "
        "app limits, which need not be one of them.",
    )


class ApiOperationRequest(ApiOperationTarget):
    """A change of many boxes. The boxes: either `devices`, or `labels`, or `all`."""

    change: Annotated[
        ApiLimitsChange | ApiSharingChange | ApiInstallChange | ApiCommandChange, Field(discriminator="kind")
    ]
    expect: Annotated[str, Field(max_length=LONGEST_SET)] | None = Field(
        default=None,
        description="`seen` of the first part of a preview: refuse (409) where it would be for other boxes, and leave "
        "a box as it is (REFUSED) whose limits of this container somebody else has set since.",
    )


class ApiOperationPreviewRequest(ApiOperationTarget):
    """A change of many boxes whose effect is asked for. The boxes: either `devices`, or `labels`, or `all`."""

    change: Annotated[ApiLimitsChange | ApiSharingChange, Field(discriminator="kind")]


class ApiSettingPreview(ApiModel):
    """What a box would do with one setting of sharing."""

    answer: str = Field(description="as_it_is, changed, rejected or unsupported.")
    text: str


class ApiBoxPreview(ApiModel):
    """What a box would make of limits, in its whole cluster, or of settings of sharing."""

    device: str
    name: str
    preview: ApiLimitsPreview | None = Field(description="Of limits; null where that is not known: `text` says why.")
    settings: dict[str, ApiSettingPreview] | None = Field(
        default=None, description="Of each setting of sharing: isolation, policy, exclusions, unit_size."
    )
    text: str
    remedy: str


class ApiOperationPreview(ApiPage[ApiBoxPreview]):
    """What boxes would make of a change: a part of them, by name."""

    container: str = Field(description="Of limits: the one that is meant; give it with the request for the next part.")
    seen: str = Field(
        description="In the first part: all boxes as they were seen now, for `expect` when the operation is started; "
        "empty in the others."
    )
    steps: ApiLimitsSteps | None = Field(description="In the first part, of limits: from which to which on all boxes.")


class ApiOperation(ApiModel):
    """A change of many boxes, and how many of them have each outcome."""

    id: str
    kind: OperationKind
    args: dict[str, Any]
    by: str
    at_s: float
    selector: str
    filter: dict[str, Any] | None = Field(
        description="What the boxes were found by, `selector` included; null where they were named."
    )
    per_box: bool = Field(description="Boxes have arguments of their own.")
    boxes: int
    state: OperationState
    ended_at_s: float | None
    key: str | None = Field(description="Chosen by who started it; null where none was.")
    seen_change: int | None = Field(
        default=None, description="The number of the last change that its person saw; null: none is kept."
    )
    undoes: str | None = Field(default=None, description="The operation that this one takes back; null: none.")
    outcomes: dict[BoxOutcome, int]
    settled: bool = Field(description="Nothing more comes of it.")


class ApiOperationBox(ApiModel):
    """A box of an operation, and what came of it there."""

    device: str
    name: str = Field(description="Empty where the box was forgotten since.")
    outcome: BoxOutcome
    text: str
    remedy: str
    rev: int | None
    command: str | None
    args: dict[str, Any] = Field(description="What the box has of its own in the place of the operation's arguments.")
    seen_rev: int | None = Field(
        description="The revision that the person has seen: a later change is not overwritten."
    )
    before: dict[str, Any] | None = Field(
        default=None, description="What it had, as arguments that bring it back; null: not known, or nothing changed."
    )
    data: dict[str, Any] | None = Field(
        description="What the command has brought back, where `data` asks for it; null: nothing yet."
    )


class ApiUndoRequest(ApiModel):
    """The start of the way back."""

    expect: Annotated[str, Field(max_length=LONGEST_SET)] | None = Field(
        default=None, description="`seen` of the plan: refuse (409) where it would be for other boxes."
    )


def _operations(request: Request, visitor: ApiVisitor) -> Operations:
    parts: ConsoleParts = request.state.parts
    return parts.operations(visitor)


ApiOperations = Annotated[Operations, Depends(_operations)]


@router.get("")
def list_operations(
    request: Request, operations: ApiOperations, limit: Limit = 50, cursor: Cursor = ""
) -> ApiPage[ApiOperation]:
    """Return operations, newest first."""
    found = operations.list(before=cursor.replace("\0", ""), limit=limit + 1)
    more = found[limit - 1].operation.id if len(found) > limit else ""
    return page_with(request, [_body(one) for one in found[:limit]], more)


@router.post("", status_code=202, response_model=ApiOperation)
def start_operation(body: ApiOperationRequest, _: ApiOperator, operations: ApiOperations, once: Once) -> Response:
    """Change many boxes: it is stored with its boxes at once, and applied to 500 boxes at a time from then on."""
    args = body.change.model_dump(exclude={"kind"})
    kind = OperationKind(body.change.kind)
    where, named = _target(body), tuple(map(DeviceId, body.devices))
    expect = None if body.expect is None else BoxSet.read(body.expect)
    if named:
        return once(lambda: _body(operations.start(kind, args, devices=named, expect=expect)), status=202)
    return once(lambda: _body(operations.start(kind, args, where=where, expect=expect)), status=202)


def _target(body: ApiOperationTarget) -> BoxFilter:
    """Return the boxes that a request is for."""
    if bool(body.devices) + bool(body.labels) + body.all != 1:
        text = "cannot tell which boxes the operation is for"
        raise ApiRequestError(text, remedy="give either `devices`, or `labels`, or `all`: true")
    if body.devices and (body.askable or body.one_of_each_cluster):
        text = "cannot leave out boxes that are named"
        remedy = "name those that can be asked, or give `askable` and `one_of_each_cluster` with `labels` or `all`"
        raise ApiRequestError(text, remedy=remedy)
    devices = frozenset(map(DeviceId, body.devices)) if body.devices else None
    return BoxFilter(
        selector=body.labels,
        devices=devices,
        askable=body.askable,
        one_of_each_cluster=body.one_of_each_cluster,
    )


@router.post("/preview")
def preview_operation(
    request: Request,
    body: ApiOperationPreviewRequest,
    operations: ApiOperations,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> ApiOperationPreview:
    """Say what boxes would make of limits or of settings of sharing, by the last reports; nothing is changed."""
    change, after = body.change, cursor.replace("\0", "")
    if isinstance(change, ApiSharingChange):
        page = operations.preview_sharing(sharing_settings(change), _target(body), after=after, limit=limit)
        of_boxes = [_of_settings(one) for one in page.boxes]
        next_ = next_address(request, page.next)
        return ApiOperationPreview(container="", items=of_boxes, next=next_, seen=page.seen, steps=None)
    found = operations.preview_limits(limits_of(change), _target(body), after=after, limit=limit)
    items = [
        ApiBoxPreview(
            device=one.device,
            name=one.name,
            preview=None if one.preview is None else preview_body(one.preview),
            text=one.text,
            remedy=one.remedy,
        )
        for one in found.boxes
    ]
    next_ = next_address(request, found.next)
    steps = None if found.steps is None else ApiLimitsSteps.model_validate(found.steps)
    return ApiOperationPreview(container=found.container, items=items, next=next_, seen=found.seen, steps=steps)


def _of_settings(one: BoxSharingPreview) -> ApiBoxPreview:
    settings = None
    if one.items is not None:
        settings = {name: ApiSettingPreview(answer=each.answer, text=each.text) for name, each in one.items.items()}
    return ApiBoxPreview(
        device=one.device, name=one.name, preview=None, settings=settings, text=one.text, remedy=one.remedy
    )


def _body(view: OperationView) -> ApiOperation:
    own = {name: getattr(view.operation, name, None) for name in ApiOperation.model_fields}
    return ApiOperation.model_validate(own | {"outcomes": dict(view.outcomes), "settled": view.settled})


@router.get("/{id_}")
def one_operation(id_: OperationId, operations: ApiOperations) -> ApiOperation:
    """Return an operation."""
    return _body(operations.get(id_.replace("\0", "")))


@router.get("/{id_}/boxes")
def operation_boxes(
    request: Request,
    id_: OperationId,
    operations: ApiOperations,
    *,
    outcome: Annotated[
        tuple[BoxOutcome, ...], Query(description="With one of these outcomes; none: all.", max_length=10)
    ] = (),
    data: Annotated[bool, Query(description="Also what the commands have brought back.")] = False,
    limit: Limit = 50,
    cursor: Cursor = "",
) -> ApiPage[ApiOperationBox]:
    """Return the boxes of an operation by id, and what came of it on each."""
    after = cursor.replace("\0", "")
    found = operations.boxes(id_.replace("\0", ""), outcomes=outcome, after=after, limit=limit, data=data)
    names = [name for name in ApiOperationBox.model_fields if name not in {"name", "data"}]
    items = [
        ApiOperationBox(name=one.name, data=one.data, **{name: getattr(one.box, name) for name in names})
        for one in found.boxes
    ]
    return page_with(request, items, found.next)


@router.post("/{id_}/cancel", response_model=ApiOperation)
def cancel_operation(id_: OperationId, _: ApiOperator, operations: ApiOperations, once: Once) -> Response:
    """Leave out the boxes for which nothing is stored yet; what is stored goes on."""
    return once(lambda: _body(operations.cancel(id_.replace("\0", ""))))


@router.get("/{id_}/undo")
def preview_undo(id_: OperationId, operations: ApiOperations) -> ApiUndoPlan:
    """Say what the way back of an operation would do; nothing is changed."""
    plan = operations.undo_plan(id_.replace("\0", ""))
    return ApiUndoPlan.model_validate({name: getattr(plan, name) for name in ApiUndoPlan.model_fields})


@router.post("/{id_}/undo", status_code=202, response_model=ApiOperation)
def undo_operation(
    id_: OperationId, body: ApiUndoRequest, _: ApiOperator, operations: ApiOperations, once: Once
) -> Response:
    """Give the boxes of an operation back what they had, by a new one; boxes that were changed since keep theirs."""
    expect = None if body.expect is None else BoxSet.read(body.expect)
    return once(lambda: _body(operations.undo(id_.replace("\0", ""), expect=expect)), status=202)
