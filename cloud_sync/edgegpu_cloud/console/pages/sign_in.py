"""Sign in, sign out, and the one-time links by which people choose their password."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Form, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, Persons
from edgegpu_cloud.console.paths import own_path
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import SESSION_COOKIE, SignedIn, Visitor, check_origin, is_from_own_page
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.people.errors import HashQueueFullError, LinkRefusedError, LockedOutError, SignInRefusedError
from edgegpu_cloud.people.people import People
from edgegpu_cloud.people.sessions import SignedIn as NewSession
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import LinkKind

router = APIRouter()

KEPT = "kept."
"""The beginning of a hidden field's name in which the sign-in page keeps a field of a form that came too late."""

SECRET_FIELDS = frozenset({"current", "password", "again"})
"""Fields of forms that no page shows again."""

Typed = Annotated[str, Form()]
"""As long as a form may be: `People` says what is wrong with it, and its page is shown again."""


@router.get("/sign-in")
def sign_in_page(request: Request, pages: Pages) -> Response:
    """Show the form."""
    back = own_path(request.query_params.get("next", "/"))
    return _sign_in_form(request, pages, {"next": back})


def _sign_in_form(
    request: Request,
    pages: PageRenderer,
    values: Mapping[str, object],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    plain = {"kept": [], "lost": False, "problem": "", "name": ""}
    return pages.page(request, "sign-in.html", {**plain, **values}, status=status, headers=headers)


def page_of_late_form(request: Request, pages: PageRenderer, path: str, fields: Sequence[tuple[str, str]]) -> Response:
    """Answer a form that came after the session had ended: it is kept to be sent again, unless it has a password.

    Only a form of a page of ours is kept: another site's page would have its own sent by whoever signs in next.

    Args:
        request: the form's.
        pages: draws the page.
        path: where the form was sent to, with its query.
        fields: of the form, less the CSRF token.
    """
    if not is_from_own_page(request):
        return _sign_in_form(request, pages, {"next": "/"}, status=401)
    lost = any(name in SECRET_FIELDS for name, _ in fields)
    kept = [] if lost else fields
    values = {"next": path if kept else _page_before(request), "kept": kept, "lost": lost}
    return _sign_in_form(request, pages, values, status=401)


def _page_before(request: Request) -> str:
    """Return the page of ours that a form was on, as far as the browser says it."""
    came = urlsplit(request.headers.get("referer", ""))
    ours = came.scheme == "https" and came.netloc == request.headers.get("host", "")
    return own_path(came.path) if ours else "/"


@router.post("/sign-in")
async def sign_in(request: Request, pages: Pages, people: Persons, name: Typed = "", password: Typed = "") -> Response:
    """Begin a session and go on; a form that came after the last one had ended is shown again, to be sent."""
    check_origin(request)
    form = await request.form()
    back = own_path(str(form.get("next", "/")))
    fields = [(key.removeprefix(KEPT), str(value)) for key, value in form.multi_items() if key.startswith(KEPT)]
    own = is_from_own_page(request)
    kept = [(key, value) for key, value in fields if own and key not in SECRET_FIELDS]
    try:
        begun = await run_in_threadpool(_begin, request, people, name, password)
    except (SignInRefusedError, LockedOutError, HashQueueFullError) as error:
        values = {"next": back, "kept": kept, "name": name}
        return _refused(request, pages, values, error)
    if not kept:
        return _with_session(RedirectResponse(back, 303), begun)
    session = await run_in_threadpool(people.session, begun.session_token)
    csrf = session.csrf if session is not None else ""
    return _with_session(_send_again(request, pages, back, kept, person=begun.account.name, csrf=csrf), begun)


def _refused(
    request: Request,
    pages: PageRenderer,
    values: Mapping[str, object],
    error: SignInRefusedError | LockedOutError | HashQueueFullError,
) -> Response:
    words, more = pages.words(request), {}
    match error:
        case LockedOutError():
            text, status = words("Too many failed tries. Try again in %(num)d s."), 429
        case HashQueueFullError():
            text, status = words("Too many people sign in at this moment. Try again in %(num)d s."), 503
        case _:
            text, status = words("Name or password is wrong."), 401
    if not isinstance(error, SignInRefusedError):
        text = text % {"num": error.retry_after_s}
        more["Retry-After"] = str(error.retry_after_s)
    return _sign_in_form(request, pages, {**values, "problem": text}, status=status, headers=more)


def page_of_old_form(
    request: Request, pages: PageRenderer, path: str, fields: Sequence[tuple[str, str]], visitor: Visitor
) -> Response:
    """Answer a form that an earlier session has drawn: who is signed in now looks at it, and sends it or leaves it.

    Args:
        request: the form's.
        pages: draws the page.
        path: where the form was sent to, with its query.
        fields: of the form, less the CSRF token; none of them is a password.
        visitor: is signed in now.
    """
    return _send_again(request, pages, own_path(path), fields, person=visitor.name, csrf=visitor.csrf, old=True)


def _send_again(
    request: Request,
    pages: PageRenderer,
    to: str,
    kept: Sequence[tuple[str, str]],
    *,
    person: str,
    csrf: str,
    old: bool = False,
) -> Response:
    typed = _typed(kept)
    values = {"to": to, "kept": kept, "typed": typed, "csrf": csrf, "person": person, "old": old}
    return pages.page(request, "send-again.html", values, status=403 if old else 200)


def _typed(kept: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the fields of a form with those of its preview, which it carries as a query."""
    found: list[tuple[str, str]] = []
    for name, text in kept:
        found += parse_qsl(text) if name == "query" else [(name, text)]
    return [(name, text) for name, text in found if text]


@router.post("/sign-out")
def sign_out(request: Request, people: Persons, _: SignedIn) -> Response:
    """End the session."""
    people.sign_out(request.cookies.get(SESSION_COOKIE, ""))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(SESSION_COOKIE, path="/", secure=True, httponly=True, samesite="lax")
    return answer


@router.get("/link")
def link_page(
    request: Request, pages: Pages, people: Persons, code: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Show the form that a one-time link opens: the first administrator's account, or a new password."""
    try:
        kind = people.link(code).kind
    except LinkRefusedError as error:
        return _link_form(request, pages, LinkForm(code, None), problem=error)
    return _link_form(request, pages, LinkForm(code, kind), problem=None)


@router.post("/link")
def redeem_link(
    request: Request,
    pages: Pages,
    people: Persons,
    code: Typed = "",
    name: Typed = "",
    password: Typed = "",
    again: Typed = "",
) -> Response:
    """Set the password, sign in, and use the link up."""
    check_origin(request)
    kind = None
    try:
        kind = people.link(code).kind
        _check_same(password, again)
        account = people.redeem(code, name, password)
    except CloudError as error:
        return _link_form(request, pages, LinkForm(code, kind, name), problem=error)
    try:
        begun = _begin(request, people, account.name, password)
    except (LockedOutError, HashQueueFullError):  # the password is set
        return RedirectResponse("/sign-in", 303)
    return _with_session(RedirectResponse("/", 303), begun)


def _check_same(password: str, again: str) -> None:
    if password != again:
        raise CloudError(phrase("The two passwords differ"), remedy=phrase("type the same one twice"))


@dataclass(frozen=True, slots=True)
class LinkForm:
    """The form of a one-time link; `kind` is None where the link is of no use."""

    code: str
    kind: LinkKind | None
    name: str = ""


def _link_form(request: Request, pages: PageRenderer, form: LinkForm, *, problem: CloudError | None) -> Response:
    values = {"form": form, "first": form.kind is LinkKind.FIRST_ADMIN, "problem": problem}
    return pages.page(request, "link.html", values, status=200 if problem is None else 400)


def _begin(request: Request, people: People, name: str, password: str) -> NewSession:
    """Sign a person in, with the browser's address and name, by which they tell their sessions apart."""
    address = request.client.host if request.client is not None else ""
    return people.sign_in(name, password, address=address, agent=request.headers.get("user-agent", ""))


def _with_session(answer: Response, begun: NewSession) -> Response:
    answer.set_cookie(SESSION_COOKIE, begun.session_token, path="/", secure=True, httponly=True, samesite="lax")
    return answer
