"""The API's application, mounted at `/api/v1`: its routes, its description, and its errors."""

from collections.abc import Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute

from edgegpu_cloud.console.api import (
    alerts,
    apps,
    boxes,
    commands,
    enrolments,
    events,
    limits,
    operations,
    rollouts,
    views,
)
from edgegpu_cloud.console.api.problems import MEDIA_TYPE, ApiProblem, ApiRequestError, add_problem_handlers

PATH = "/api/v1"
ROUTERS = (
    boxes.router,
    views.router,
    apps.router,
    limits.router,
    commands.router,
    operations.router,
    rollouts.router,
    alerts.router,
    enrolments.router,
    events.router,
)

_DESCRIPTION = """The fleet of a controller. Every request needs `Authorization: Bearer egt_...`, an API token of a
person: it may do what the person may, and no more than its own role and scope. Every error is a problem (RFC 9457) with
`code` and `remedy`. Lists have `next`, the path of the next part. Times are seconds since 1970."""


def _check_query(request: Request) -> None:
    """Refuse a parameter of the query that the endpoint does not have: a misspelt filter would select every box."""
    route: APIRoute = request.scope["route"]
    known = _query_names(request.app).get((request.method, route.name), frozenset())
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        text = f"cannot take the parameter {unknown[0][:80]!r}: there is none of this name"
        raise ApiRequestError(text, remedy=f"there are {', '.join(sorted(known)) or 'none'}")


def _query_names(app: FastAPI) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the names of the query's parameters by method and id of the operation, as the description has them."""
    found: Mapping[tuple[str, str], frozenset[str]] | None = getattr(app.state, "query_names", None)
    if found is None:
        found = app.state.query_names = {
            (method.upper(), operation["operationId"]): frozenset(
                one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
            )
            for methods in app.openapi()["paths"].values()
            for method, operation in methods.items()
        }
    return found


def make_api() -> FastAPI:
    """Build the API; the parts of the console come with each request."""
    problem: dict[int | str, dict[str, Any]] = {
        "default": {
            "model": ApiProblem,
            "description": "A problem.",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ApiProblem"}}},
        }
    }
    app = FastAPI(
        title="edgegpu",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=problem,
        dependencies=[Depends(_check_query)],
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
    )
    for router in ROUTERS:
        app.include_router(router)
    add_problem_handlers(app)
    return app
