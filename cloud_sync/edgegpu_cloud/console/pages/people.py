"""People: accounts with roles and scopes, for admins who see all boxes."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, Persons
from edgegpu_cloud.console.rendering import LANGUAGES, PageRenderer
from edgegpu_cloud.console.visitor import SignedIn, Visitor
from edgegpu_cloud.errors import CloudError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Permission
from edgegpu_cloud.people.people import People
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter()

PAGE = 50

Scope = Annotated[str, Form(max_length=500)]
FormRole = Annotated[Role, Form()]


class PeopleQuery(BaseModel):
    """What is looked for in names, scopes and roles; the name after which the page begins."""

    model_config = ConfigDict(frozen=True)

    q: Annotated[str, Field(max_length=200)] = ""
    after: Annotated[str, Field(max_length=64)] = ""

    def url(self, after: str = "") -> str:
        """Return the address of the list at another page."""
        words = self.model_copy(update={"after": after}).model_dump(exclude_defaults=True)
        return f"/people?{urlencode(words)}" if words else "/people"


EVERYBODY = PeopleQuery()

NEW_PERSON = MappingProxyType({"name": "", "role": Role.VIEWER, "scope": "", "language": ""})
"""The form of a person as it is shown first."""


@router.get("/people")
def people_page(
    request: Request, visitor: SignedIn, people: Persons, pages: Pages, query: Annotated[PeopleQuery, Query()]
) -> Response:
    """Show a page of the accounts, and the form for a new one."""
    return _list(request, visitor, people, pages, NEW_PERSON, query=query)


def _list(
    request: Request,
    visitor: Visitor,
    people: People,
    pages: PageRenderer,
    form: Mapping[str, object],
    *,
    query: PeopleQuery = EVERYBODY,
    problem: CloudError | None = None,
) -> Response:
    search, after = (text.replace("\0", "").strip() for text in (query.q, query.after))
    found = people.page(search, after=after, limit=PAGE + 1, by=visitor.access)
    values = {
        "query": query,
        "people": found[:PAGE],
        "next": found[PAGE - 1].name if len(found) > PAGE else "",
        "roles": list(Role),
        "form": form,
        "problem": problem,
        "names_of_languages": LANGUAGES,
    }
    return pages.page(request, "people.html", values, status=400 if problem else 200)


@router.post("/people")
def add_person(
    request: Request,
    visitor: SignedIn,
    people: Persons,
    pages: Pages,
    name: Annotated[str, Form(max_length=64)] = "",
    role: FormRole = Role.VIEWER,
    scope: Scope = "",
    language: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Make an account; the answer shows the link by which the person sets a password, this once."""
    try:
        code = people.create(name, role=role, scope=scope, language=language, by=visitor.access)
    except (ForbiddenError, NotFoundError):
        raise
    except CloudError as error:
        form = {"name": name, "role": role, "scope": scope, "language": language}
        return _list(request, visitor, people, pages, form, problem=error)
    return _person(request, visitor, people, pages, name, code=code)


@router.get("/people/{name}")
def person_page(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """Show an account."""
    return _person(request, visitor, people, pages, name)


def _person(
    request: Request,
    visitor: Visitor,
    people: People,
    pages: PageRenderer,
    name: str,
    *,
    code: str = "",
    problem: CloudError | None = None,
    form: Mapping[str, object] = MappingProxyType({}),
) -> Response:
    parts: ConsoleParts = request.state.parts
    by = visitor.access
    by.require(Permission.PEOPLE)  # an admin alone comes here, also to their own account
    account = people.account(name, by=by)
    values = {
        "person": account,
        "form": {"role": account.role, "scope": account.scope, **form},
        "roles": list(Role),
        "sessions": people.sessions(account.name, by=by),
        "tokens": people.tokens(account.name, by=by),
        "link": f"{parts.url}/link?code={code}" if code else "",
        "problem": problem,
    }
    return pages.page(request, "person.html", values, status=400 if problem else 200)


def _changed(
    request: Request,
    visitor: Visitor,
    people: People,
    pages: PageRenderer,
    name: str,
    change: Callable[[], object],
    **form: object,
) -> Response:
    """Do a change and show the account again; what is refused is said there, with the fields of its form as sent."""
    try:
        change()
    except (ForbiddenError, NotFoundError):
        raise
    except CloudError as error:
        return _person(request, visitor, people, pages, name, problem=error, form=form)
    return RedirectResponse(f"/people/{name}", 303)


@router.post("/people/{name}/role")
def set_role(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages, role: FormRole) -> Response:
    """Give a person another role."""
    change = partial(people.set_role, name, role, by=visitor.access)
    return _changed(request, visitor, people, pages, name, change, role=role)


@router.post("/people/{name}/scope")
def set_scope(
    name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages, scope: Scope = ""
) -> Response:
    """Give a person another scope."""
    change = partial(people.set_scope, name, scope, by=visitor.access)
    return _changed(request, visitor, people, pages, name, change, scope=scope)


@router.post("/people/{name}/disable")
def disable(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """Shut a person out."""
    return _changed(request, visitor, people, pages, name, lambda: people.disable(name, by=visitor.access))


@router.post("/people/{name}/enable")
def enable(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """Let a person in again."""
    return _changed(request, visitor, people, pages, name, lambda: people.enable(name, by=visitor.access))


@router.post("/people/{name}/sessions/end")
def end_sessions(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """End all sessions of a person."""
    return _changed(request, visitor, people, pages, name, lambda: people.revoke_sessions(name, by=visitor.access))


@router.post("/people/{name}/link")
def reset_password(name: str, request: Request, visitor: SignedIn, people: Persons, pages: Pages) -> Response:
    """Make a link for a new password; the answer shows it this once."""
    try:
        code = people.reset_password(name, by=visitor.access)
    except (ForbiddenError, NotFoundError):
        raise
    except CloudError as error:
        return _person(request, visitor, people, pages, name, problem=error)
    return _person(request, visitor, people, pages, name, code=code)


@router.post("/people/{name}/remove")
def remove(
    name: str,
    request: Request,
    visitor: SignedIn,
    people: Persons,
    pages: Pages,
    typed: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Remove an account, once its name was typed."""
    if typed.strip().lower() != name:
        another = CloudError(phrase("That was another name."))
        return _person(request, visitor, people, pages, name, problem=another)
    answer = _changed(request, visitor, people, pages, name, lambda: people.delete(name, by=visitor.access))
    return RedirectResponse("/people", 303) if isinstance(answer, RedirectResponse) else answer
