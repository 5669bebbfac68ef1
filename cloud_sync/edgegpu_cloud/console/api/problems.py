"""Problems (RFC 9457): every error of the API is one, with a code for programs, its cause and its remedy."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from edgegpu_cloud.console.visitor import ForgedFormError, NotAllowedError, NotSignedInError
from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.idempotency import InFlightError, KeyReusedError
from edgegpu_cloud.store.migrations import OtherTablesError
from edgegpu_cloud.store.store import StoreError
from edgegpu_core.sentences import Sentence
from edgegpu_sync.faults import at_field, fault

_LOG = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class ApiProblem(BaseModel):
    """What went wrong, why, and what to do about it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(default="about:blank", description="Always about:blank: `code` tells the kind.")
    title: str = Field(description="The meaning of the HTTP status.")
    status: int = Field(description="The HTTP status.")
    code: str = Field(description="The kind of the problem, for programs.")
    detail: str = Field(description="What cannot be done, and why.")
    remedy: str = Field(default="", description="What to do about it.")


class StaleRevisionError(CloudError):
    """A change under If-Match whose revision is not the present one."""


class ApiRequestError(CloudError):
    """A request that the API cannot take: a header or a value is wrong."""


_TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Precondition failed",
    422: "Refused",
    500: "A fault of the server",
    503: "The store does not answer",
}
_OF_CLOUD: tuple[tuple[type[CloudError], int, str], ...] = (
    (NotFoundError, 404, "NOT_FOUND"),
    (KeyReusedError, 422, "KEY_REUSED"),
    (InFlightError, 409, "IN_FLIGHT"),
    (StaleRevisionError, 412, "STALE_REVISION"),
    (ConflictError, 409, "CONFLICT"),
    (ForbiddenError, 403, "NOT_ALLOWED"),
    (StoreError, 503, "STORE"),
    (OtherTablesError, 503, "TABLES"),
    (ApiRequestError, 400, "BAD_REQUEST"),
)
_OF_VISITOR = {
    NotSignedInError: (
        401,
        "NOT_SIGNED_IN",
        "no valid API token and no session",
        "send `Authorization: Bearer egt_...`; a token is made on the page of your account",
    ),
    ForgedFormError: (
        403,
        "NO_CSRF_TOKEN",
        "a change by a session needs its CSRF token",
        "send it as X-CSRF-Token, or use an API token",
    ),
    NotAllowedError: (403, "NOT_ALLOWED", "your role does not allow this", "ask an admin for another role"),
}


def problem(status: int, code: str, detail: str, remedy: str = "") -> Response:
    """Return an answer that is a problem."""
    body = ApiProblem(title=_TITLES.get(status, "Error"), status=status, code=code, detail=detail, remedy=remedy)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004  (HTTP's own)
    return JSONResponse(body.model_dump(), status, headers=headers, media_type=MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Let an application answer its errors with problems."""
    app.add_exception_handler(CloudError, _cloud_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _fault)
    for kind in _OF_VISITOR:
        app.add_exception_handler(kind, _visitor_error)


async def _cloud_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, CloudError):
        raise error
    status, code = next(
        ((status, code) for kind, status, code in _OF_CLOUD if isinstance(error, kind)), (422, "REFUSED")
    )
    return problem(status, code, error.text, error.remedy)


async def _visitor_error(_: Request, error: Exception) -> Response:
    return problem(*next(words for kind, words in _OF_VISITOR.items() if isinstance(error, kind)))


def request_fault(error: RequestValidationError) -> Sentence:
    """Return the first fault of a request after the name of its field, without the value: it may be a secret."""
    first = error.errors()[0]
    whole, *path = first["loc"]
    if first["type"] == "json_invalid":  # its path is a place in the text
        path = []
    return at_field(".".join(map(str, path)) or str(whole), fault(first))


async def _invalid(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return problem(422, "INVALID", request_fault(error), "see /api/v1/openapi.json for what is taken")


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "BAD_REQUEST")
    answer = problem(error.status_code, code, str(error.detail), "see /api/v1/openapi.json for what there is")
    answer.headers.update(error.headers or {})
    return answer


async def _fault(_: Request, error: Exception) -> Response:
    _LOG.error("a request of the API failed", exc_info=error)
    return problem(500, "FAULT", "this is a fault of the server; its log says more", "try again; then report it")
