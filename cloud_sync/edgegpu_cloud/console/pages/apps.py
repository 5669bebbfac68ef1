"""The apps of the fleet: one row per container of an app, one column per box that has it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.app_matrix import AppMatrix
from edgegpu_cloud.fleet.limits.app_page import AppPage, AppQuery

router = APIRouter()

_NOTHING = AppPage(matrix=AppMatrix([], []), next_apps="", next_boxes="", previous_boxes="", number=0)


@router.get("/apps")
def apps_page(
    *,
    request: Request,
    fleet: VisitorFleet,
    pages: Pages,
    q: Annotated[str, Query(max_length=520)] = "",
    labels: Annotated[str, Query(max_length=500)] = "",
    differs: Annotated[str, Query(max_length=8)] = "",
    after: Annotated[str, Query(max_length=520)] = "",
    boxes: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show a page of the matrix of limits."""
    query = AppQuery(words=q.strip(), selector=labels.strip(), after=after, boxes=boxes)
    found, problem = _NOTHING, None
    try:
        found = fleet.app_page(query)
    except CloudError as error:
        problem = error
    values: dict[str, Any] = {
        "query": query,
        "differs": differs,
        "found": found,
        "rows": [row for row in found.matrix.rows if row.differs or not differs],
        "columns": [details.box for details in found.matrix.boxes],
        "problem": problem,
    }
    return pages.page(request, "apps.html", values, block="matrix", status=400 if problem else 200)
