"""Rollouts: the list, and one rollout with its waves and boxes; it is paused, resumed, aborted."""

from functools import partial
from typing import Annotated, Self
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorRollouts
from edgegpu_cloud.console.paths import PathNumber
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.changes import RolloutKind
from edgegpu_cloud.rollouts.rollouts import Rollouts
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutFilter, RolloutState

router = APIRouter(prefix="/rollouts")

PAGE = 50


class RolloutsQuery(BaseModel):
    """What a person looks for: words in people and changes or a number, a kind, a state; the place of the page."""

    model_config = ConfigDict(frozen=True)

    q: Annotated[str, Field(max_length=200)] = ""
    kind: Annotated[str, Field(max_length=20)] = ""
    state: Annotated[str, Field(max_length=20)] = ""
    before: Annotated[str, Field(max_length=16, pattern="^[0-9]*$")] = ""

    def at(self, before: str) -> Self:
        """Return the same search at another page."""
        return self.model_copy(update={"before": before})

    @property
    def url(self) -> str:
        """Return the address of the list."""
        words = self.model_dump(exclude_defaults=True)
        return f"/rollouts?{urlencode(words)}" if words else "/rollouts"

    def filter(self) -> RolloutFilter:
        """Return the filter of the list; a value that is none of the form's does not count."""
        return RolloutFilter(
            search=self.q.replace("\0", "").strip(),
            kind=next((one.value for one in RolloutKind if one == self.kind), ""),
            state=next((one for one in RolloutState if one == self.state), None),
        )


@router.get("")
def rollouts_page(
    request: Request, rollouts: VisitorRollouts, pages: Pages, query: Annotated[RolloutsQuery, Query()]
) -> Response:
    """Show a page of the rollouts that match, newest first."""
    found = rollouts.all(where=query.filter(), before=int(query.before) if query.before else None, limit=PAGE + 1)
    values = {
        "query": query,
        "rollouts": found[:PAGE],
        "older": str(found[PAGE - 1].number) if len(found) > PAGE else "",
        "kinds": tuple(kind.value for kind in RolloutKind),
        "states": tuple(state.value for state in RolloutState),
    }
    return pages.page(request, "rollouts.html", values, block="list")


@router.get("/{number}")
def rollout_page(
    request: Request,
    number: PathNumber,
    rollouts: VisitorRollouts,
    pages: Pages,
    show: Annotated[str, Query(max_length=20)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """Show a rollout: its waves, and where its boxes stand."""
    return _one(request, number, rollouts, pages, show=show, page=page)


def _one(
    request: Request,
    number: int,
    rollouts: Rollouts,
    pages: PageRenderer,
    *,
    show: str = "",
    page: int = 1,
    problem: CloudError | None = None,
) -> Response:
    view = rollouts.show(number)
    states = [state for state in RolloutBoxState if state == show]
    total = view.states.get(states[0], 0) if states else view.boxes
    values = {
        "view": view,
        "boxes": rollouts.boxes(number, states, limit=PAGE, offset=(page - 1) * PAGE),
        "show": states[0].value if states else "",
        "page": page,
        "pages": max(1, -(-total // PAGE)),
        "problem": problem,
        "way_back": partial(rollouts.way_back, number),  # the list alone does not ask
    }
    return pages.page(request, "rollout.html", values, block="list", status=400 if problem else 200)


_STOPS = {"pause", "abort"}
"""What takes one press: it changes no box."""


@router.post("/{number}/{verb}")
def change(
    request: Request,
    number: PathNumber,
    verb: str,
    _: Operator,
    rollouts: VisitorRollouts,
    pages: Pages,
    *,
    typed: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Pause or abort a rollout; resume it or give its boxes back what they had, with the number of its boxes typed."""
    try:
        boxes = rollouts.show(number).boxes
        if verb not in _STOPS and typed.strip() != str(boxes):
            text = phrase(
                "cannot %(verb)s rollout %(number)s: the number of its boxes was not typed", verb=verb, number=number
            )
            raise CloudError(text, remedy=phrase("type %(boxes)s", boxes=boxes))  # noqa: TRY301  (one answer for all)
        match verb:
            case "pause":
                rollouts.pause(number)
            case "resume":
                rollouts.resume(number)
            case "abort" | "return":
                rollouts.abort(number, returns=verb == "return")
            case _:
                text = phrase("cannot %(verb)s a rollout", verb=verb)
                raise CloudError(text, remedy=phrase("pause, resume, abort or return it"))  # noqa: TRY301
    except CloudError as error:
        return _one(request, number, rollouts, pages, problem=error)
    return RedirectResponse(f"/rollouts/{number}", 303)
