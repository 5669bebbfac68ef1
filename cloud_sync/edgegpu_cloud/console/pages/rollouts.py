"""Rollouts: the list, one rollout with its waves and boxes, and a new one with the preview of its waves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self, TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator, SignedIn
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, BoxSet
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings, read_app
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.changes import RolloutChange, RolloutKind, kind_of, read_release
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, OfflinePolicy, RolloutStrategy, read_sizes
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutFilter, RolloutState

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/rollouts")

PAGE = 50
RELEASE = ("version", "url", "sha256", "signature")
"""The fields of the form that say which release the boxes upgrade to."""

USUAL = {
    RolloutKind.SHARING: FailurePolicy.RETURN,
    RolloutKind.LIMITS: FailurePolicy.RETURN,
    RolloutKind.UPGRADE: FailurePolicy.STOP,
}
"""What follows a failed gate where the form does not say it: boxes take no older version of the agent."""
_MINUTE_S = 60
_Choice = TypeVar("_Choice", bound=StrEnum)


def _rollouts(request: Request, visitor: SignedIn) -> Rollouts:
    parts: ConsoleParts = request.state.parts
    return parts.rollouts(visitor)


VisitorRollouts = Annotated[Rollouts, Depends(_rollouts)]
Number = Annotated[int, Query(ge=1)]


class RolloutsQuery(BaseModel):
    """What a person looks for: words in people and changes or a number, a kind, a state; the place of the page."""

    model_config = ConfigDict(frozen=True)

    q: Annotated[str, Field(max_length=200)] = ""
    kind: Annotated[str, Field(max_length=20)] = ""
    state: Annotated[str, Field(max_length=20)] = ""
    before: Annotated[str, Field(max_length=16, pattern="^[0-9]*$")] = ""

    def at(self, before: str) -> Self:
        """Return the same search at another page."""
        return self.model_copy(update={"before": before})

    @property
    def url(self) -> str:
        """Return the address of the list."""
        words = self.model_dump(exclude_defaults=True)
        return f"/rollouts?{urlencode(words)}" if words else "/rollouts"

    def filter(self) -> RolloutFilter:
        """Return the filter of the list; a value that is none of the form's does not count."""
        return RolloutFilter(
            search=self.q.replace("\0", "").strip(),
            kind=next((one.value for one in RolloutKind if one == self.kind), ""),
            state=next((one for one in RolloutState if one == self.state), None),
        )


@router.get("")
def rollouts_page(
    request: Request, rollouts: VisitorRollouts, pages: Pages, query: Annotated[RolloutsQuery, Query()]
) -> Response:
    """Show a page of the rollouts that match, newest first."""
    found = rollouts.all(where=query.filter(), before=int(query.before) if query.before else None, limit=PAGE + 1)
    values = {
        "query": query,
        "rollouts": found[:PAGE],
        "older": str(found[PAGE - 1].number) if len(found) > PAGE else "",
        "kinds": tuple(kind.value for kind in RolloutKind),
        "states": tuple(state.value for state in RolloutState),
    }
    return pages.page(request, "rollouts.html", values, block="list")


@router.get("/new")
def new_page(request: Request, _: Operator, rollouts: VisitorRollouts, pages: Pages) -> Response:
    """Show the form; where it was filled in, the waves too."""
    return _form(request, rollouts, pages, dict(request.query_params))


@router.post("")
def start(
    request: Request,
    _: Operator,
    rollouts: VisitorRollouts,
    pages: Pages,
    *,
    query: Annotated[str, Form(max_length=4_000)] = "",
    typed: Annotated[str, Form(max_length=10)] = "",
    seen: Annotated[str, Form(max_length=LONGEST_SET)] = "",
) -> Response:
    """Start what was previewed; the number of boxes was typed, and they have to be the same ones by now."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    try:
        wanted = _wanted(given)
        boxes = _number(typed or "0", phrase("number of boxes"))
        number = rollouts.start(wanted, expect_boxes=boxes, expect=BoxSet.read(seen))
    except CloudError as error:
        return _form(request, rollouts, pages, given, problem=error)
    return RedirectResponse(f"/rollouts/{number}", 303)


def _form(
    request: Request,
    rollouts: Rollouts,
    pages: PageRenderer,
    given: Mapping[str, str],
    *,
    problem: CloudError | None = None,
) -> Response:
    plan = None
    if given and problem is None:
        try:
            plan = rollouts.outline(_wanted(given))
        except CloudError as error:
            problem = error
    values = {"given": given, "plan": plan, "problem": problem, "query": urlencode(given)}
    return pages.page(request, "rollout-new.html", values, status=400 if problem else 200)


def _choice(choices: type[_Choice], text: str) -> _Choice:
    try:
        return choices(text)
    except ValueError as error:
        raise CloudError(
            phrase("cannot start a rollout: %(text)r is no value of the form", text=text),
            remedy=phrase("choose one of the form's values"),
        ) from error


def _wanted(given: Mapping[str, str]) -> RolloutRequest:
    change = _change(given)
    gate = Gate(
        success_percent=_number(given.get("success", "100"), phrase("success share")),
        minimum=_number(given.get("minimum", "1"), phrase("minimum")),
        soak_s=_number(given.get("soak", "0"), phrase("soak time")) * _MINUTE_S,
    )
    strategy = RolloutStrategy(
        canary=_number(given.get("canary", "1"), phrase("canary")),
        sizes=read_sizes(given.get("waves", "25%")),
        gate=gate,
        timeout_s=_number(given.get("timeout", "15"), phrase("time of one box")) * _MINUTE_S,
        on_failure=_choice(FailurePolicy, given.get("on_failure") or USUAL[kind_of(change)]),
        offline=_choice(OfflinePolicy, given.get("offline", "join")),
    )
    first = tuple(given.get("first", "").split())
    return RolloutRequest(change=change, selector=given.get("labels", "").strip(), first=first, strategy=strategy)


def _change(given: Mapping[str, str]) -> RolloutChange:
    if given.get("what") == RolloutKind.UPGRADE:
        return read_release({name: given.get(name, "").strip() for name in RELEASE})
    if given.get("what") != RolloutKind.LIMITS:
        unit = given.get("unit_mib", "").strip()
        return SharingSettings(
            policy=given.get("policy") or None,
            exclude=tuple(given.get("exclude", "").split()) or None,
            unit_mib=_number(unit, phrase("unit")) if unit else None,
            isolation=given.get("isolation") or None,
        )
    namespace, app = read_app(given.get("app", ""))
    return ContainerLimits(
        namespace=namespace,
        app=app,
        container=given.get("container", "").strip() or app,
        memory_units=_number(given.get("memory", ""), phrase("memory")),
        core=_number(given.get("core", "1"), phrase("core")),
        force=bool(given.get("force")),
        interrupt=bool(given.get("interrupt")),
        live=bool(given.get("live")),
    )


def _number(text: str, what: str) -> int:
    if not text.strip().isdecimal():
        raise CloudError(
            phrase("cannot start a rollout: the %(number)s is %(text)r", number=what, text=text),
            remedy=phrase("give a whole number"),
        )
    return int(text)


@router.get("/{number}")
def rollout_page(
    request: Request,
    number: int,
    rollouts: VisitorRollouts,
    pages: Pages,
    show: Annotated[str, Query(max_length=20)] = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """Show a rollout: its waves, and where its boxes stand."""
    return _one(request, number, rollouts, pages, show=show, page=page)


def _one(
    request: Request,
    number: int,
    rollouts: Rollouts,
    pages: PageRenderer,
    *,
    show: str = "",
    page: int = 1,
    problem: CloudError | None = None,
) -> Response:
    view = rollouts.show(number)
    states = [state for state in RolloutBoxState if state == show]
    total = view.states.get(states[0], 0) if states else view.boxes
    values = {
        "view": view,
        "boxes": rollouts.boxes(number, states, limit=PAGE, offset=(page - 1) * PAGE),
        "show": states[0].value if states else "",
        "page": page,
        "pages": max(1, -(-total // PAGE)),
        "problem": problem,
    }
    return pages.page(request, "rollout.html", values, block="list", status=400 if problem else 200)


@router.post("/{number}/{verb}")
def change(
    request: Request,
    number: int,
    verb: str,
    _: Operator,
    rollouts: VisitorRollouts,
    pages: Pages,
    *,
    typed: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Pause, resume or abort a rollout, with the number of its boxes typed."""
    try:
        boxes = rollouts.show(number).boxes
        if typed.strip() != str(boxes):
            text = phrase(
                "cannot %(verb)s rollout %(number)s: the number of its boxes was not typed", verb=verb, number=number
            )
            raise CloudError(text, remedy=phrase("type %(boxes)s", boxes=boxes))  # noqa: TRY301  (one answer for all)
        match verb:
            case "pause":
                rollouts.pause(number)
            case "resume":
                rollouts.resume(number)
            case "abort" | "return":
                rollouts.abort(number, returns=verb == "return")
            case _:
                text = phrase("cannot %(verb)s a rollout", verb=verb)
                raise CloudError(text, remedy=phrase("pause, resume, abort or return it"))  # noqa: TRY301
    except CloudError as error:
        return _one(request, number, rollouts, pages, problem=error)
    return RedirectResponse(f"/rollouts/{number}", 303)
