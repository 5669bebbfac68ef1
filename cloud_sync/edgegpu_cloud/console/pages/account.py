"""My account: sessions with a way to end them, API tokens that are shown once, language, password."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, Persons
from edgegpu_cloud.console.rendering import LANGUAGES, PageRenderer
from edgegpu_cloud.console.visitor import SESSION_COOKIE, SignedIn, Visitor
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.people.errors import SignInRefusedError
from edgegpu_cloud.people.people import People
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import Role

router = APIRouter()

DAYS = (7, 30, 90, 365)
"""How long a new token may be valid, as the page offers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTokenForm:
    """The form of an API token, as it was sent, or as it is shown first."""

    name: str = ""
    role: Role = Role.VIEWER
    scope: str = ""
    days: int = 90


NEW_TOKEN = ApiTokenForm()

Secret = Annotated[str, Form()]


@router.get("/account")
def account_page(request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """Show the account."""
    return _page(request, visitor, people, pages)


def _page(
    request: Request,
    visitor: Visitor,
    people: People,
    pages: PageRenderer,
    *,
    problem: CloudError | None = None,
    token: str = "",
    form: ApiTokenForm = NEW_TOKEN,
) -> Response:
    by, now_s = visitor.access, request.state.parts.clock()
    current = people.session(request.cookies.get(SESSION_COOKIE, ""))
    values = {
        "account": people.account(visitor.name, by=by),
        "sessions": people.sessions(visitor.name, by=by)[::-1],
        "current": current.id if current is not None else "",
        "tokens": people.tokens(visitor.name, by=by),
        "roles": [role for role in Role if role.rank <= visitor.role.rank],
        "days": sorted({*DAYS, form.days}),
        "now_s": now_s,
        "names_of_languages": LANGUAGES,
        "problem": problem,
        "new_token": token,
        "form": form,
    }
    return pages.page(request, "account.html", values, status=400 if problem else 200)


def _back() -> Response:
    return RedirectResponse("/account", 303)


@router.post("/account/password")
def set_password(
    request: Request, visitor: SignedIn, people: Persons, pages: Pages, current: Secret, password: Secret, again: Secret
) -> Response:
    """Set another password; the other sessions end."""
    if password != again:
        differ = CloudError(phrase("The two passwords differ"), remedy=phrase("type the same one twice"))
        return _page(request, visitor, people, pages, problem=differ)
    kept = request.cookies.get(SESSION_COOKIE, "")
    try:
        people.set_password(visitor.name, password, by=visitor.access, current=current, keep_session=kept)
    except SignInRefusedError:
        wrong = CloudError(phrase("The present password is wrong."))
        return _page(request, visitor, people, pages, problem=wrong)
    except CloudError as error:
        return _page(request, visitor, people, pages, problem=error)
    return _back()


@router.post("/account/language")
def set_language(visitor: SignedIn, people: Persons, language: Annotated[str, Form(max_length=8)] = "") -> Response:
    """Set the language of the pages."""
    people.set_language(visitor.name, language, by=visitor.access)
    return _back()


@router.post("/account/sessions/end-others")
def end_others(request: Request, visitor: SignedIn, people: Persons) -> Response:
    """End all sessions but this one."""
    current = people.session(request.cookies.get(SESSION_COOKIE, ""))
    people.revoke_sessions(visitor.name, by=visitor.access, but=current.id if current is not None else "")
    return _back()


@router.post("/account/sessions/{id_}/end")
def end_session(id_: str, visitor: SignedIn, people: Persons) -> Response:
    """End one of the person's sessions."""
    people.revoke_session(id_, by=visitor.access)
    return _back()


@router.post("/account/tokens")
def make_token(
    request: Request,
    visitor: SignedIn,
    people: Persons,
    pages: Pages,
    name: Annotated[str, Form(max_length=64)] = "",
    role: Annotated[Role, Form()] = Role.VIEWER,
    scope: Annotated[str, Form(max_length=500)] = "",
    days: Annotated[int, Form(ge=1, le=3_660)] = NEW_TOKEN.days,
) -> Response:
    """Make an API token; the answer shows it this once."""
    try:
        text, _ = people.create_token(visitor.name, name, role=role, scope=scope, days=days, by=visitor.access)
    except CloudError as error:
        form = ApiTokenForm(name=name, role=role, scope=scope, days=days)
        return _page(request, visitor, people, pages, problem=error, form=form)
    return _page(request, visitor, people, pages, token=text)


@router.post("/account/tokens/{id_}/revoke")
def revoke_token(id_: str, visitor: SignedIn, people: Persons) -> Response:
    """Make a token worthless at once."""
    people.revoke_token(visitor.name, id_, by=visitor.access)
    return _back()
