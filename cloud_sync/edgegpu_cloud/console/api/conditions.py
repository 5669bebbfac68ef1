"""Conditions of requests: ETags of what is read, revisions under which a document is changed, pages of lists."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from edgegpu_cloud.console.api.models.fleet import ApiPage
from edgegpu_cloud.console.api.problems import ApiRequestError
from edgegpu_cloud.numbers import is_number

T = TypeVar("T")

MOST_ITEMS = 200
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="How many items the answer has at most.")]
Cursor = Annotated[str, Query(max_length=1_000, description="From `next` of the part before.")]
NumberCursor = Annotated[int, Query(ge=0, le=2**53, description="From `next` of the part before.")]
IfNoneMatch = Annotated[str, Header(max_length=1_000, description="An ETag: 304 where it is the present one.")]


def tagged(body: BaseModel, if_none_match: str, *, revision: int | None = None) -> Response:
    """Return a body with its ETag, or 304 where the sender has it: of a document its revision, else a hash."""
    content = body.model_dump(mode="json")
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()[:32]
    tag = f'"{digest}"' if revision is None else revision_tag(revision)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in {one.strip().removeprefix("W/") for one in if_none_match.split(",")}:
        return Response(status_code=304, headers=headers)
    return JSONResponse(content, headers=headers)


def revision_tag(revision: int) -> str:
    """Return the ETag of a desired document."""
    return f'"{revision}"'


def _expected(
    if_match: Annotated[
        str, Header(max_length=100, description="The revision that you have seen, as its ETag: 412 if it is another.")
    ] = "",
) -> int | None:
    if not if_match or if_match.strip() == "*":
        return None
    text = if_match.strip().strip('"')
    if not is_number(text, digits=15):  # of a number in JSON
        text = f"cannot take If-Match: {if_match[:40]!r} is no revision"
        raise ApiRequestError(text, remedy="send the ETag of the desired document")
    return int(text)


ExpectedRevision = Annotated[int | None, Depends(_expected)]


def page_with(request: Request, items: Sequence[T], cursor: str) -> ApiPage[T]:
    """Return a part of a list; `cursor` is that of the next part, empty where there is none."""
    return ApiPage(items=list(items), next=next_address(request, cursor))


def next_address(request: Request, cursor: str) -> str | None:
    """Return the address of the part that a cursor leads to."""
    if not cursor:
        return None
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return f"{request.url.path}?{urlencode([*query, ('cursor', cursor)])}"
