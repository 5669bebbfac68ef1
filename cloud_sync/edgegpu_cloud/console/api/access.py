"""Who sends a request to the API: an API token, or the session of a page, which then needs its CSRF header."""

import hmac
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from edgegpu_cloud.console.visitor import (
    CSRF_HEADER,
    SESSION_COOKIE,
    ForgedFormError,
    NotAllowedError,
    NotSignedInError,
    Visitor,
    check_origin,
)
from edgegpu_cloud.enrolment.manager import EnrolmentManager
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

_SAFE = {"GET", "HEAD", "OPTIONS"}
_SCHEME = HTTPBearer(auto_error=False, description="An API token of a person: `egt_...`.")


async def api_visitor(request: Request, _: Annotated[object, Security(_SCHEME)]) -> Visitor:
    """Return who sends a request.

    Raises:
        NotSignedInError: no API token and no session that is valid.
        ForgedFormError: a change by a session without its CSRF header, or from another site.
    """
    parts: ConsoleParts = request.state.parts
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        found = await run_in_threadpool(parts.api_tokens, token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise NotSignedInError
        return found
    session = request.cookies.get(SESSION_COOKIE, "")
    found = await run_in_threadpool(parts.visitors.visitor, session) if session else None
    if found is None:
        raise NotSignedInError
    if request.method not in _SAFE:
        check_origin(request)
        if not hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), found.csrf.encode()):
            raise ForgedFormError
    return found


ApiVisitor = Annotated[Visitor, Depends(api_visitor)]


def _least(role: Role) -> object:
    def check(visitor: ApiVisitor) -> Visitor:
        if not visitor.may(role):
            raise NotAllowedError
        return visitor

    return Depends(check)


ApiOperator = Annotated[Visitor, _least(Role.OPERATOR)]
ApiAdmin = Annotated[Visitor, _least(Role.ADMIN)]


def _fleet(request: Request, visitor: ApiVisitor) -> Fleet:
    parts: ConsoleParts = request.state.parts
    return parts.fleet(visitor)


def _enrolment(request: Request, visitor: ApiVisitor) -> EnrolmentManager:
    parts: ConsoleParts = request.state.parts
    return parts.enrolment(visitor)


ApiFleet = Annotated[Fleet, Depends(_fleet)]
ApiEnrolment = Annotated[EnrolmentManager, Depends(_enrolment)]
