"""Who sends a request: the signed-in person, by the cookie of the session, and the guard of every form."""

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

SESSION_COOKIE = "__Host-edgegpu-session"
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
_SAFE = {"GET", "HEAD", "OPTIONS"}


class NotSignedInError(Exception):
    """Nobody is signed in: the request is answered by the sign-in page, which keeps what was typed."""


class ForgedFormError(Exception):
    """A change that did not come from a page of this session."""


class OldFormError(Exception):
    """A form of a page of ours that an earlier session has drawn: it is shown again, to be sent by who is signed in."""

    def __init__(self, visitor: "Visitor") -> None:
        super().__init__(visitor.name)
        self.visitor = visitor


class NotAllowedError(Exception):
    """The person's role does not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The signed-in person. `scope`: the label selector of the boxes that they see; empty: all.

    `language`: `en`, `zh`, or empty for the browser's.
    """

    name: str
    role: Role
    csrf: str = field(repr=False)
    scope: str = ""
    language: str = ""

    @property
    def access(self) -> Access:
        """Return what the person may do, as the services take it."""
        return Access(self.name, self.role, read_scope(self.scope))

    def may(self, role: Role) -> bool:
        """Whether the person has at least this role."""
        return self.role.rank >= role.rank


class Visitors(Protocol):
    """Knows the sessions: the people of a store, or those of a test."""

    def visitor(self, token: str) -> Visitor | None:
        """Return the person of a session's token; None where there is no such session, or it has ended."""
        ...


async def signed_in(request: Request) -> Visitor:
    """Return the signed-in person; a change must carry the session's own CSRF token.

    Raises:
        NotSignedInError: no session.
        ForgedFormError: the token is missing or another one, or the request comes from another site.
        OldFormError: the token is another session's, and the browser says that a page of ours has sent the form.
    """
    parts: ConsoleParts = request.state.parts
    token = request.cookies.get(SESSION_COOKIE, "")
    found = await run_in_threadpool(parts.visitors.visitor, token) if token else None
    if found is None:
        raise NotSignedInError
    if request.method not in _SAFE:
        await check_form(request, found)
    request.state.visitor = found
    return found


async def check_form(request: Request, visitor: Visitor) -> None:
    """Refuse a change that another site's page has sent, or one without the token of the visitor's session.

    Raises:
        ForgedFormError: it is one.
        OldFormError: a page of ours has sent it, which an earlier session has drawn.
    """
    check_origin(request)
    header = request.headers.get(CSRF_HEADER, "")
    given = header or str((await request.form()).get(CSRF_FIELD, ""))
    if hmac.compare_digest(given.encode(), visitor.csrf.encode()):
        return
    if given and not header and is_from_own_page(request):
        raise OldFormError(visitor)
    raise ForgedFormError


def is_from_own_page(request: Request) -> bool:
    """Whether the browser says that a page of ours has sent a request; one that says nothing does not count."""
    origin, site = request.headers.get("origin", ""), request.headers.get("sec-fetch-site", "")
    is_own = origin == f"https://{request.headers.get('host', '')}"
    return (is_own or not origin) if site == "same-origin" else (is_own and not site)


def check_origin(request: Request) -> None:
    """Refuse what another site's page has sent, as far as the browser says so.

    Raises:
        ForgedFormError: it says so.
    """
    origin = request.headers.get("origin", "")
    if origin and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise ForgedFormError
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise ForgedFormError


SignedIn = Annotated[Visitor, Depends(signed_in)]


def _needs(role: Role) -> object:
    def check(visitor: SignedIn) -> Visitor:
        if not visitor.may(role):
            raise NotAllowedError
        return visitor

    return Depends(check)


Operator = Annotated[Visitor, _needs(Role.OPERATOR)]
Admin = Annotated[Visitor, _needs(Role.ADMIN)]
