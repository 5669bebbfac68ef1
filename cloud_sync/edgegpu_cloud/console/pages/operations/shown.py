"""Changes of many boxes: the list, and one of them with what came of it on each box."""

import secrets
from typing import Annotated, Self
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorFleet, VisitorOperations
from edgegpu_cloud.console.pages.fleet import as_searched
from edgegpu_cloud.console.pages.operations.confirmation import check_typed
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, BoxSet
from edgegpu_cloud.fleet.operations.effects import effects_of, op_of_change
from edgegpu_cloud.fleet.operations.operations import KEY_MAX, Operations, OperationView
from edgegpu_cloud.fleet.operations.undo import UndoPlan
from edgegpu_cloud.store.operations.records import (
    BoxOutcome,
    Operation,
    OperationFilter,
    OperationKind,
    OperationState,
)
from edgegpu_cloud.store.records import Json

router = APIRouter(prefix="/operations")

PAGE = 50
_NO_SEARCH = {"askable", "one_of_each_cluster"}
OperationId = Annotated[str, Path(min_length=1, max_length=40)]


class OperationsQuery(BaseModel):
    """What a person looks for: words in ids, people, labels and arguments, a kind, a state, a box; the page's place."""

    model_config = ConfigDict(frozen=True)

    q: Annotated[str, Field(max_length=200)] = ""
    kind: Annotated[str, Field(max_length=20)] = ""
    state: Annotated[str, Field(max_length=20)] = ""
    box: Annotated[str, Field(max_length=40)] = ""
    before: Annotated[str, Field(max_length=40)] = ""

    def at(self, before: str) -> Self:
        """Return the same search at another page."""
        return self.model_copy(update={"before": before})

    @property
    def url(self) -> str:
        """Return the address of the list."""
        words = self.model_dump(exclude_defaults=True)
        return f"/operations?{urlencode(words)}" if words else "/operations"

    def filter(self) -> OperationFilter:
        """Return the filter of the list; a value that is none of the form's does not count."""
        return OperationFilter(
            search=_text(self.q),
            kind=next((one for one in OperationKind if one == self.kind), None),
            state=next((one for one in OperationState if one == self.state), None),
            device=_text(self.box),
        )


def _found_by(operation: Operation) -> Json | None:
    """Return what the boxes of an operation were found by, as the list of boxes has it; None where they were named.

    That boxes which cannot be asked were left out, or one of each cluster was asked, is no search of that list.
    """
    if operation.filter is not None:
        return as_searched({name: value for name, value in operation.filter.items() if name not in _NO_SEARCH})
    return {"selector": operation.selector} if operation.selector else None


def _text(words: str) -> str:
    return words.replace("\0", "").strip()


@router.get("")
def operations_page(
    request: Request,
    operations: VisitorOperations,
    fleet: VisitorFleet,
    pages: Pages,
    query: Annotated[OperationsQuery, Query()],
) -> Response:
    """Show a page of the operations that match, newest first."""
    found = operations.list(where=query.filter(), before=_text(query.before), limit=PAGE + 1)
    values = {
        "query": query,
        "operations": found[:PAGE],
        "found_of": _found_by,
        "older": found[PAGE - 1].operation.id if len(found) > PAGE else "",
        "kinds": tuple(kind.value for kind in OperationKind),
        "states": tuple(state.value for state in OperationState),
        "box_name": fleet.names_of([query.box]).get(_text(query.box), query.box) if query.box else "",
    }
    return pages.page(request, "operations.html", values, block="list")


@router.get("/{id_}/undo")
def undo_page(request: Request, id_: OperationId, _: Operator, operations: VisitorOperations, pages: Pages) -> Response:
    """Show what the way back of an operation would do."""
    return _undo(request, id_, operations, pages)


def _undo(
    request: Request, id_: str, operations: Operations, pages: PageRenderer, *, problem: CloudError | None = None
) -> Response:
    view = operations.get(_text(id_))
    plan: UndoPlan | None = None
    try:
        plan = operations.undo_plan(view.operation.id)
    except CloudError as error:
        problem = problem or error
    values = {"one": view.operation, "plan": plan, "problem": problem, "key": secrets.token_hex(16), "most": PAGE}
    status = 409 if isinstance(problem, ConflictError) else 400 if problem else 200
    return pages.page(request, "operation-undo.html", values, status=status)


@router.post("/{id_}/undo")
def undo(
    *,
    request: Request,
    id_: OperationId,
    _: Operator,
    operations: VisitorOperations,
    pages: Pages,
    typed: Annotated[str, Form(max_length=10)] = "",
    seen: Annotated[str, Form(max_length=LONGEST_SET)] = "",
    key: Annotated[str, Form(max_length=KEY_MAX)] = "",
) -> Response:
    """Start the way back that was shown; the number of its boxes was typed."""
    try:
        expect = BoxSet.read(seen)
        check_typed(typed, expect.number)
        view = operations.undo(_text(id_), key=key, expect=expect)
    except NotFoundError:
        raise
    except CloudError as error:
        return _undo(request, id_, operations, pages, problem=error)
    return RedirectResponse(f"/operations/{view.operation.id}", 303)


@router.get("/{id_}")
def operation_page(
    request: Request,
    id_: OperationId,
    operations: VisitorOperations,
    pages: Pages,
    *,
    show: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """Show an operation: what it changes, how far it is, and its boxes."""
    return _one(request, id_, operations, pages, show=show, after=_text(after))


def _undoable(view: OperationView) -> bool:
    """Whether boxes may get back what they had: the operation is stored, and has changed some of them."""
    changed = sum(view.outcomes.get(one, 0) for one in (BoxOutcome.STORED, BoxOutcome.APPLIED, BoxOutcome.REJECTED))
    one = view.operation
    return bool(changed) and one.state is not OperationState.RUNNING and one.kind is not OperationKind.COMMAND


def _one(
    request: Request,
    id_: str,
    operations: Operations,
    pages: PageRenderer,
    *,
    show: str = "",
    after: str = "",
    problem: CloudError | None = None,
) -> Response:
    view = operations.get(_text(id_))
    outcomes = [one for one in BoxOutcome if one == show]
    page = operations.boxes(view.operation.id, outcomes=outcomes, after=after, limit=PAGE)
    values = {
        "view": view,
        "one": view.operation,
        "found": _found_by(view.operation),
        "page": page,
        "show": outcomes[0].value if outcomes else "",
        "after": after,
        "queued": view.outcomes.get(BoxOutcome.QUEUED, 0),
        "ended": sum(
            number for one, number in view.outcomes.items() if one not in {BoxOutcome.QUEUED, BoxOutcome.STORED}
        ),
        "numbers": [(one.value, view.outcomes[one]) for one in BoxOutcome if view.outcomes.get(one)],
        "undoable": _undoable(view),
        "effects": effects_of(op_of_change(view.operation.kind, view.operation.args)),
        "problem": problem,
    }
    status = 409 if isinstance(problem, ConflictError) else 400 if problem else 200
    return pages.page(request, "operation.html", values, block="list", status=status)


@router.post("/{id_}/cancel")
def cancel(request: Request, id_: OperationId, _: Operator, operations: VisitorOperations, pages: Pages) -> Response:
    """Leave out the boxes for which nothing is stored yet."""
    try:
        view = operations.cancel(_text(id_))
    except ConflictError as error:
        return _one(request, id_, operations, pages, problem=error)
    return RedirectResponse(f"/operations/{view.operation.id}", 303)
