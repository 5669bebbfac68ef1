"""The console's application: routes, static files, the answers to what goes wrong."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.console import live, metrics
from edgegpu_cloud.console.api.app import PATH as API_PATH
from edgegpu_cloud.console.api.app import make_api
from edgegpu_cloud.console.api.problems import MEDIA_TYPE, problem, request_fault
from edgegpu_cloud.console.live import ChangeWatcher
from edgegpu_cloud.console.metrics import ConsoleMetrics, TimedRequests
from edgegpu_cloud.console.pages import (
    account,
    apps,
    audit,
    box,
    enrol,
    evidence,
    fleet,
    limits,
    people,
    preferences,
    remove,
    sharing,
    sign_in,
)
from edgegpu_cloud.console.pages.alerts import shown as alerts
from edgegpu_cloud.console.pages.alerts import webhooks
from edgegpu_cloud.console.pages.operations import new, shown
from edgegpu_cloud.console.pages.rollouts import new as new_rollout
from edgegpu_cloud.console.pages.rollouts import shown as rollouts
from edgegpu_cloud.console.rendering import HERE, PageRenderer
from edgegpu_cloud.console.security import SecurityHeaders
from edgegpu_cloud.console.visitor import (
    CSRF_FIELD,
    ForgedFormError,
    NotAllowedError,
    NotSignedInError,
    OldFormError,
    Visitor,
    Visitors,
)
from edgegpu_cloud.enrolment.install_lines import EnrolmentAddress
from edgegpu_cloud.enrolment.manager import EnrolmentManager
from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.history.evidence import EvidenceService
from edgegpu_cloud.fleet.idempotency import IdempotentRequests
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.http.guard import RefusalBody, RequestGuard
from edgegpu_cloud.people.people import People
from edgegpu_cloud.phrases import of_sentence
from edgegpu_cloud.rollouts.rollouts import Rollouts
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.store import StoreError

_LOG = logging.getLogger(__name__)
_NO_FORM: Mapping[str, object] = MappingProxyType({"fields": (), "wrong": "", "to": ""})

SIGN_IN = "/sign-in"
_FOREVER = "public, max-age=31536000, immutable"

ROUTERS = (
    live.router,
    preferences.router,
    sign_in.router,
    account.router,
    people.router,
    audit.router,
    fleet.router,
    box.router,
    evidence.router,
    limits.router,
    new_rollout.router,
    rollouts.router,
    new.router,
    shown.router,
    webhooks.router,
    alerts.router,
    sharing.router,
    apps.router,
    enrol.router,
    remove.router,
)
"""The routes of all screens; a new screen is named here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """What the pages work with.

    `fleet` to `evidence` return what a person sees and changes; `repeated` knows the requests of the API that were sent
    under a key; `enrolment_address` is where boxes enrol; `visitors` knows the sessions, `api_tokens` returns the
    person of an API token's text; `watcher` wakes pages.
    """

    fleet: Callable[[Visitor], Fleet]
    enrolment: Callable[[Visitor], EnrolmentManager]
    rollouts: Callable[[Visitor], Rollouts]
    operations: Callable[[Visitor], Operations]
    alerts: Callable[[Visitor], Alerts]
    evidence: Callable[[Visitor], EvidenceService]
    repeated: IdempotentRequests
    metrics: ConsoleMetrics
    enrolment_address: Callable[[], EnrolmentAddress]
    people: People
    visitors: Visitors
    api_tokens: Callable[[str], Visitor | None]
    url: str
    """The URL by which people reach the console, which no request has a say in."""
    watcher: ChangeWatcher
    check_store: Callable[[], None]
    """Raises CloudError where the store does not answer."""
    clock: Callable[[], float]
    version: str


class _StaticFiles(StaticFiles):
    """Static files below the version's own path: a browser keeps them until the version changes."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file; the first part of its path is the version."""
        _, _, name = path.partition("/")
        answer = await super().get_response(name, scope)
        answer.headers["Cache-Control"] = _FOREVER
        return answer


def make_console(parts: ConsoleParts) -> ASGIApp:
    """Build the application, which handles requests without sockets and TLS."""
    pages = PageRenderer(version=parts.version, screens=_paths(), alerts=partial(_firing, parts), clock=parts.clock)
    return SecurityHeaders(
        RequestGuard(TimedRequests(_WithParts(_application(), parts, pages), parts.metrics), refusal=_refusal)
    )


class _WithParts:
    """Gives each request what it works with: the routes hold nothing, and are built once in a process."""

    def __init__(self, app: ASGIApp, parts: ConsoleParts, pages: PageRenderer) -> None:
        self._app, self._parts, self._pages = app, parts, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose `request.state` has the parts, the pages and `since`, the store's position now."""
        since = str(self._parts.watcher.position)  # before the request reads anything: its page's stream begins here
        scope.setdefault("state", {}).update({"parts": self._parts, "pages": self._pages, "since": since})
        await self._app(scope, receive, send)


@cache
def _application() -> FastAPI:
    """Return the routes of the pages and of the API, whose models take half a second to build."""
    app = FastAPI(title="edgegpu console", docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/static", GZipMiddleware(_StaticFiles(directory=HERE / "static"), minimum_size=500))
    for router in ROUTERS:
        app.include_router(router)

    app.mount(API_PATH, make_api())

    @app.api_route("/healthz", methods=["GET", "HEAD"])
    def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    def readyz(request: Request) -> PlainTextResponse:
        parts: ConsoleParts = request.state.parts
        try:
            parts.check_store()
        except CloudError as error:
            _LOG.warning("not ready: %s", error)
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    app.include_router(metrics.router)
    _add_errors(app)
    return app


def _firing(parts: ConsoleParts, visitor: Visitor) -> int | None:
    """Return how many alerts fire unsilenced; None where the store does not answer, which a page of its own says."""
    try:
        return parts.alerts(visitor).unsilenced()
    except CloudError as error:
        _LOG.warning("cannot count the alerts: %s", error)
        return None


def _refusal(path: str, status: int, words: str) -> RefusalBody:
    """Return what the guard itself answers: below the API a problem."""
    if path.startswith(f"{API_PATH}/"):
        return RefusalBody(MEDIA_TYPE, bytes(problem(status, "BAD_REQUEST", words, "send less, or try again").body))
    return RefusalBody("text/plain; charset=utf-8", words.encode() + b"\n")


def _paths() -> frozenset[str]:
    """Return the paths of all screens."""
    return frozenset(route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))


def _add_errors(app: FastAPI) -> None:
    app.add_exception_handler(NotSignedInError, _not_signed_in)
    app.add_exception_handler(ForgedFormError, _page_of(403, "forged"))
    app.add_exception_handler(OldFormError, _old_form)
    app.add_exception_handler(NotAllowedError, _page_of(403, "not-allowed"))
    app.add_exception_handler(ForbiddenError, _page_of(403, "not-allowed"))
    app.add_exception_handler(NotFoundError, _page_of(404, "not-found"))
    app.add_exception_handler(ConflictError, _page_of(409, "conflict"))
    app.add_exception_handler(CloudError, _page_of(400, "refused"))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


async def _not_signed_in(request: Request, _: Exception) -> Response:
    """Send a reader to the sign-in page and back; keep the content of a form that was sent too late."""
    if request.url.path == "/live":
        return PlainTextResponse("signed out\n", 401)
    to = f"{SIGN_IN}?{urlencode({'next': _path(request)})}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": to})
    if request.method in {"GET", "HEAD"}:
        return RedirectResponse(to, 303)
    return sign_in.page_of_late_form(request, request.state.pages, _path(request), await _fields(request))


async def _old_form(request: Request, error: Exception) -> Response:
    """Show a form of an earlier session again; one with a password is refused, for no page shows it again."""
    if not isinstance(error, OldFormError):
        raise error
    request.state.visitor = error.visitor
    fields = await _fields(request)
    if any(name in sign_in.SECRET_FIELDS for name, _ in fields):
        return _problem(request, 403, "forged", error)
    return sign_in.page_of_old_form(request, request.state.pages, _path(request), fields, error.visitor)


async def _invalid(request: Request, error: Exception) -> Response:
    """Say what is wrong with a request; a form is shown again with what was typed, to be put right and sent."""
    if not isinstance(error, RequestValidationError):
        raise error
    where, *path = map(str, error.errors()[0]["loc"])
    if where != "body" or not path or getattr(request.state, "visitor", None) is None:
        return _problem(request, 422, "refused", error)
    wrong, fields = path[0], await _fields(request)
    shown = [(name, text) for name, text in fields if name not in sign_in.SECRET_FIELDS]
    if wrong not in {name for name, _ in fields}:
        shown.append((wrong, ""))
    form = {"fields": shown, "wrong": wrong, "to": _path(request)}
    return _problem(request, 422, "refused", error, form=form)


async def _fields(request: Request) -> list[tuple[str, str]]:
    """Return the fields of a form, less the CSRF token."""
    form = await request.form()
    return [(name, str(value)) for name, value in form.multi_items() if name != CSRF_FIELD]


def _path(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}"


def _page_of(status: int, kind: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        return _problem(request, status, kind, error)

    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if request.url.path.startswith(f"{API_PATH}/"):  # a line feed in it: no route of the API's own matches
        return problem(status, "NOT_FOUND", "there is no such path", "see /api/v1/openapi.json for what there is")
    return _problem(request, status, "not-found" if status == 404 else "refused", error)  # noqa: PLR2004  (HTTP's own)


def _words_of_database(request: Request, error: Exception) -> str:
    """Return the words of a database's driver for an administrator; the log has them in any case."""
    if not isinstance(error, StoreError):
        return ""
    _LOG.warning("%s", error)
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    return error.words if visitor is not None and visitor.may(Role.ADMIN) else ""


def _problem(
    request: Request, status: int, kind: str, error: Exception, *, form: Mapping[str, object] = _NO_FORM
) -> Response:
    text, remedy = (error.text, error.remedy) if isinstance(error, CloudError) else ("", "")
    if isinstance(error, RequestValidationError):
        text = of_sentence(request_fault(error))
    values = {"kind": kind, "text": text, "remedy": remedy, "words": _words_of_database(request, error), **form}
    pages: PageRenderer = request.state.pages
    return pages.page(request, "problem.html", values, block="problem", status=status)
