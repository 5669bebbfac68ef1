"""The limit editor: new limits of an app, what would come of them on every box concerned, and their history."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.bars import tones_of
from edgegpu_cloud.console.context import Pages, VisitorFleet, VisitorOperations
from edgegpu_cloud.console.pages.operations.confirmation import check_typed
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.card_views import BoxCards
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.limits.amounts import MOST_UNITS, MemoryMeasure, read_core
from edgegpu_cloud.fleet.limits.apps import apps_of
from edgegpu_cloud.fleet.limits.editor import MOST_BOXES, EditedBox, LimitsEdit, TypedLimits, edit_limits
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.targets import cluster_target
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import KEY_MAX, Operations
from edgegpu_cloud.fleet.specs import ContainerLimits, check_app
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.operations.records import BoxArgs, OperationKind
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.spec import OnDrift

router = APIRouter()

OLD_S = 900.0
_HISTORY = 30
_LONGEST_BOX, _LARGEST_REV, _REV_DIGITS = 300, 2**63 - 1, 19
"""Of a box as the button names it: longer than any name with its numbers, and the largest revision of a store."""

Part = Annotated[str, Path(min_length=1, max_length=253)]
Words = Annotated[str, Query(max_length=500)]


@dataclass(frozen=True, slots=True)
class ChosenBox:
    """A box as the button of the editor names it: its device id, the revision that was seen, and the amounts there.

    `core` is None where the button names one core for all boxes.
    """

    device: str
    rev: int
    units: int
    core: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeHandle:
    """The edge of the app's piece that can be dragged: the card's bar, its place there in units, and its limits."""

    node: str
    card: str
    at: int
    now: int
    most: int


@router.get("/boxes/{device}/limits")
def choose_app(
    request: Request,
    device: Part,
    fleet: VisitorFleet,
    pages: Pages,
    namespace: Words = "",
    app: Words = "",
    container: Words = "",
) -> Response:
    """Show the apps of a box's cluster, or lead to the editor of the app that was named."""
    target = cluster_target(fleet, device)
    problem = None
    if app:
        key = ContainerKey(namespace.strip() or "default", app.strip(), container.strip() or app.strip())
        try:
            check_app(key.namespace, key.app, key.container)
        except CloudError as error:
            problem = error
        else:
            return RedirectResponse(_path(device, key), 303)
    values = {
        "box": fleet.box(device),
        "apps": apps_of(target.boxes),
        "problem": problem,
        "named": {"namespace": namespace, "app": app, "container": container},
    }
    return pages.page(request, "limits-apps.html", values, status=400 if problem else 200)


def _key(namespace: Part, app: Part, container: Part) -> ContainerKey:
    return ContainerKey(namespace, app, container)


def _typed(
    *,
    memory: Words = "",
    measure: Words = MemoryMeasure.UNITS,
    core: Words = "",
    on_drift: Words = "",
    also: Words = "",
    force: Words = "",
    interrupt: Words = "",
    live: Words = "",
) -> TypedLimits:
    return TypedLimits(
        memory=memory,
        measure=measure,
        core=core,
        force=bool(force),
        interrupt=bool(interrupt),
        live=bool(live),
        on_drift=on_drift,
        also=also.strip(),
    )


@router.get("/boxes/{device}/limits/{namespace}/{app}/{container}")
def editor(
    request: Request,
    device: Part,
    key: Annotated[ContainerKey, Depends(_key)],
    typed: Annotated[TypedLimits, Depends(_typed)],
    fleet: VisitorFleet,
    pages: Pages,
) -> Response:
    """Show the editor with a preview of what was typed; HTMX takes one part of the page alone."""
    try:
        edit = edit_limits(fleet, device, key, typed)
    except CloudError as error:
        if not typed.also:
            raise
        edit = edit_limits(fleet, device, key, replace(typed, also=""))
        edit = replace(edit, typed=replace(edit.typed, also=typed.also), problem=error)
    part = request.headers.get("hx-target", "")
    return pages.page(
        request,
        "limits.html",
        editor_values(fleet, device, edit),
        block=part if part in {"outcome", "history"} else "preview",
        status=400 if edit.problem is not None else 200,
    )


def editor_values(fleet: Fleet, device: str, edit: LimitsEdit, refused: CloudError | None = None) -> dict[str, Any]:
    """Return what the editor shows; `refused` says why limits were not set."""
    asked = edit.main.target.asked
    history = fleet.limits_history(asked.box.device, edit.key)
    drawn = {one.target.asked.box.device: _drawn(one) for one in edit.boxes}
    return {
        "box": fleet.box(device),
        "edit": edit,
        "key": edit.key,
        "typed": edit.typed,
        "path": _path(device, edit.key),
        "drawn": drawn,
        "tone": tones_of(card for boxes in drawn.values() for cards in boxes for card in cards.cards),
        "edge": _edge(edit.main),
        "measures": tuple(MemoryMeasure),
        "drifts": tuple(OnDrift),
        "old_s": OLD_S,
        "history": history[:_HISTORY],
        "request_of_app": next((one for one in fleet.requests(asked.box.device) if one.name == edit.key.item), None),
        "refused": refused,
        "once": secrets.token_hex(16),
    }


def _path(device: str, key: ContainerKey) -> str:
    return f"/boxes/{device}/limits/{key.namespace}/{key.app}/{key.container}"


def _drawn(one: EditedBox) -> Sequence[BoxCards]:
    """Return the cards to draw: after the change, or too full where it does not fit."""
    if one.bars is None:
        return ()
    return one.bars.overfull or one.bars.after


def _edge(one: EditedBox) -> EdgeHandle | None:
    """Return the handle at the end of the app's new piece; None where no piece is drawn, or it has whole cards."""
    if one.limits is None:
        return None
    for cards in _drawn(one):
        most = max((card.units for card in cards.cards), default=0)
        for card in cards.cards:
            for piece in card.pieces:
                mine = piece.planned and piece.container == one.limits.container and not piece.whole
                if mine:
                    end = piece.first_unit + one.limits.memory_units
                    return EdgeHandle(node=cards.node, card=card.uuid, at=end, now=one.limits.memory_units, most=most)
    return None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The number of boxes as it was typed, and the key under which the button is pressed once."""

    number: str
    once: str


@dataclass(frozen=True, slots=True)
class LimitsForm:
    """What the button of the editor sends: the limits of the first box; each box has amounts of its own.

    `typed`: the amount as it was typed, and the other boxes.
    """

    limits: ContainerLimits
    boxes: Sequence[ChosenBox]
    typed: TypedLimits
    confirmed: Confirmation


def _confirmation(
    number: Annotated[str, Form(max_length=10)] = "", once: Annotated[str, Form(max_length=KEY_MAX)] = ""
) -> Confirmation:
    return Confirmation(number, once)


def _amount(
    memory: Annotated[str, Form(max_length=20)] = "",
    measure: Annotated[str, Form(max_length=8)] = MemoryMeasure.UNITS,
    also: Annotated[str, Form(max_length=500)] = "",
) -> TypedLimits:
    return TypedLimits(memory=memory, measure=measure, also=also)


def _form(  # noqa: PLR0913  (one for each field)
    *,
    key: Annotated[ContainerKey, Depends(_key)],
    box: Annotated[list[str] | None, Form()] = None,
    core: Annotated[str, Form(max_length=6)] = "",
    on_drift: Annotated[OnDrift | None, Form()] = None,
    force: Annotated[str, Form(max_length=8)] = "",
    interrupt: Annotated[str, Form(max_length=8)] = "",
    live: Annotated[str, Form(max_length=8)] = "",
    amount: Annotated[TypedLimits, Depends(_amount)],
    confirmed: Annotated[Confirmation, Depends(_confirmation)],
) -> LimitsForm:
    chosen = [_chosen(text) for text in box or ()]
    if not 1 <= len(chosen) <= MOST_BOXES:
        raise CloudError(
            phrase("cannot set limits: no box is named, or too many"), remedy=phrase("open the editor again")
        )
    chosen = [replace(one, core=read_core(core)) if one.core is None else one for one in chosen]
    limits = ContainerLimits(
        namespace=key.namespace,
        app=key.app,
        container=key.container,
        memory_units=chosen[0].units,
        core=chosen[0].core or 0,
        force=bool(force),
        interrupt=bool(interrupt),
        live=bool(live),
        on_drift=on_drift,
    )
    typed = replace(
        amount,
        memory=amount.memory or ("" if core else str(limits.memory_units)),
        core=core,
        force=limits.force,
        interrupt=limits.interrupt,
        live=limits.live,
        on_drift=on_drift.value if on_drift else "",
    )
    return LimitsForm(limits, chosen, typed, confirmed)


@router.post("/boxes/{device}/limits/{namespace}/{app}/{container}")
def set_limits(
    *,
    request: Request,
    device: Part,
    key: Annotated[ContainerKey, Depends(_key)],
    _: Operator,
    form: Annotated[LimitsForm, Depends(_form)],
    fleet: VisitorFleet,
    operations: VisitorOperations,
    pages: Pages,
) -> Response:
    """Set the limits as the button said, on the boxes that it counted; what another person has set meanwhile stays.

    On one box they are set at once; on several they are one operation, with the number of boxes typed.
    """
    try:
        if len(form.boxes) > 1:
            return RedirectResponse(f"/operations/{_start(operations, form)}", 303)
        [one] = form.boxes
        fleet.set_limits(one.device, form.limits, expect_rev=one.rev)
    except CloudError as error:
        edit = edit_limits(fleet, device, key, form.typed)
        status = 409 if isinstance(error, ConflictError) else 400
        return pages.page(request, "limits.html", editor_values(fleet, device, edit, error), status=status)
    return RedirectResponse(f"{_path(device, key)}#outcome", 303)


def _start(operations: Operations, form: LimitsForm) -> str:
    """Start the operation that sets the limits on several boxes; return its id.

    Raises:
        CloudError: the number of boxes was not typed, or as `Operations.start`.
    """
    amounts = {"memory_units": form.limits.memory_units, "core": form.limits.core}
    each = [(one, {"memory_units": one.units, "core": one.core}) for one in form.boxes]
    common = {name: value for name, value in amounts.items() if all(mine[name] == value for _, mine in each)}
    own = {
        _device(one): BoxArgs(args={name: mine[name] for name in mine if name not in common}, seen_rev=one.rev)
        for one, mine in each
    }
    check_typed(form.confirmed.number, len(own))
    args = asdict(form.limits) | dict.fromkeys(amounts) | common
    view = operations.start(
        OperationKind.LIMITS, args, devices=own.keys(), own=own, key=form.confirmed.once, expect=BoxSet.of(own.keys())
    )
    return view.operation.id


def _device(chosen: ChosenBox) -> DeviceId:
    try:
        return device_id(chosen.device)
    except SyncError as error:
        raise _no_boxes() from error


def _no_boxes() -> CloudError:
    return CloudError(
        phrase("cannot set limits: the form names no box, revision and units"), remedy=phrase("open the editor again")
    )


def _chosen(text: str) -> ChosenBox:
    """Read `DEVICE:REV:UNITS:CORE`, or `DEVICE:REV:UNITS`, where the form has a core for all boxes.

    Raises:
        CloudError: it is none.
    """
    device, _, rest = text.partition(":")
    rev, _, rest = rest.partition(":")
    units, _, core = rest.partition(":")
    numbers = is_number(rev, digits=_REV_DIGITS) and is_number(units, digits=len(str(MOST_UNITS)))
    if not numbers or len(text) > _LONGEST_BOX or int(units) > MOST_UNITS or int(rev) > _LARGEST_REV:
        raise _no_boxes()
    return ChosenBox(device, int(rev), int(units), read_core(core) if core else None)


@router.post("/boxes/{device}/limits/{namespace}/{app}/{container}/forget")
def forget_limits(
    device: Part,
    key: Annotated[ContainerKey, Depends(_key)],
    _: Operator,
    fleet: VisitorFleet,
    rev: Annotated[int, Form(ge=0)],
) -> Response:
    """Take back the request that the page showed; the limits on the box stay as they are."""
    asked = cluster_target(fleet, device).asked.box.device
    fleet.forget_limits(asked, key.namespace, key.app, key.container, expect_rev=rev)
    return RedirectResponse(f"{_path(device, key)}#outcome", 303)
