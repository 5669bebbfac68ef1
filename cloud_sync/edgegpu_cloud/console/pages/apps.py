"""The apps of the fleet: each container with the values of its limits, how many boxes have each, and which."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.app_page import AppPage, AppQuery, BoxesWithApp
from edgegpu_cloud.fleet.limits.app_values import read_value
from edgegpu_cloud.fleet.limits.history import ContainerKey

router = APIRouter()

_NO_APPS, _NO_BOXES = AppPage([], ""), BoxesWithApp([], "")

Labels = Annotated[str, Query(max_length=500)]
After = Annotated[str, Query(max_length=520)]
Name = Annotated[str, Path(max_length=253)]


@router.get("/apps")
def apps_page(
    *,
    request: Request,
    fleet: VisitorFleet,
    pages: Pages,
    q: Annotated[str, Query(max_length=520)] = "",
    labels: Labels = "",
    differs: Annotated[str, Query(max_length=8)] = "",
    after: After = "",
) -> Response:
    """Show a page of apps with the values of their limits."""
    query = AppQuery(words=q.strip(), selector=labels.strip(), after=after)
    found, problem = _NO_APPS, None
    try:
        found = fleet.apps.page(query)
    except CloudError as error:
        problem = error
    values: dict[str, Any] = {
        "query": query,
        "differs": differs,
        "found": found,
        "rows": [row for row in found.apps if row.differs or not differs],
        "problem": problem,
    }
    return pages.page(request, "apps.html", values, block="apps", status=400 if problem else 200)


@router.get("/apps/{namespace}/{app}/{container}")
def app_boxes_page(  # noqa: PLR0913  (one for each name and parameter)
    *,
    request: Request,
    namespace: Name,
    app: Name,
    container: Name,
    fleet: VisitorFleet,
    pages: Pages,
    value: Annotated[str, Query(max_length=1_000)] = "",
    labels: Labels = "",
    after: After = "",
) -> Response:
    """Show the boxes that have a container, or of them those with one value."""
    key = ContainerKey(namespace, app, container)
    found, problem = _NO_BOXES, None
    try:
        found = fleet.apps.boxes(key, value=value, selector=labels.strip(), after=after)
    except CloudError as error:
        problem = error
    values: dict[str, Any] = {
        "key": key,
        "value": read_value(value),
        "query": {"value": value, "labels": labels, "after": after},
        "found": found,
        "problem": problem,
    }
    return pages.page(request, "app.html", values, block="boxes", status=400 if problem else 200)
